"""Shell: `kafka-features`: which features the brokers know, and which level the cluster has settled on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.kafka.arguments import Parser, client_settings, emit
from barnabas.cli.session import run_admin

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin

_OTHERS = ("upgrade", "downgrade", "disable", "version-mapping", "feature-dependencies")


def main() -> None:
    parser = Parser("kafka-features", "Show the cluster's feature levels.")
    parser.add_argument("command", choices=["describe", *_OTHERS])
    parser.refuse("--bootstrap-controller", why="ask a broker, with --bootstrap-server")
    options = parser.parse_args()
    if options.command != "describe":
        parser.error(f"{options.command} is not offered: a broker of this version runs at the one level it knows")

    async def command(admin: AsyncAdmin) -> None:
        from barnabas.metadata.features import METADATA_VERSION_NAMES
        from barnabas.wire.messages.api_versions import ApiVersionsRequest

        request = ApiVersionsRequest(client_software_name="barnabas-cli", client_software_version="1")
        response = await admin.cluster.send_any(request)
        finalized = {f.name: f.max_version_level for f in response.finalized_features}
        epoch = response.finalized_features_epoch if response.finalized_features_epoch >= 0 else "-"
        for feature in sorted(response.supported_features, key=lambda f: f.name):
            levels = [feature.min_version, feature.max_version, finalized.get(feature.name, 0)]
            low, high, level = (
                METADATA_VERSION_NAMES.get(n, str(n)) if feature.name == "metadata.version" else str(n) for n in levels
            )
            emit(
                f"Feature: {feature.name:<40}\tSupportedMinVersion: {low:<15}\tSupportedMaxVersion: {high:<15}"
                f"\tFinalizedVersionLevel: {level:<15}\tEpoch: {epoch}"
            )

    run_admin(options.bootstrap_server, command, client_settings(options))
