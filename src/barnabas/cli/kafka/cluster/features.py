"""Shell: `kafka-features`: shows and changes the feature levels of the brokers and of the cluster."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from barnabas.cli.kafka.arguments import Parser, client_settings, emit, split_pairs
from barnabas.cli.session import run_admin

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin

_CHANGES = {"upgrade": 1, "downgrade": 2}
"""The UpgradeType of UpdateFeatures for each command; 3 would be an unsafe downgrade."""
_OTHERS = ("disable", "version-mapping", "feature-dependencies")


def main() -> None:
    parser = Parser("kafka-features", "Show and change the cluster's feature levels.")
    parser.add_argument("command", choices=["describe", *_CHANGES, *_OTHERS])
    parser.add_argument("--feature", action="append", metavar="NAME=LEVEL", help="upgrade, downgrade: may be repeated")
    parser.add_argument("--release-version", metavar="VERSION", help="upgrade: the levels of this release, such as 4.3")
    parser.add_argument("--unsafe", action="store_true", help="downgrade: even if metadata is lost")
    parser.add_argument("--dry-run", action="store_true", help="only check whether the change is possible")
    parser.refuse("--bootstrap-controller", why="use --bootstrap-server with the address of a broker")
    options = parser.parse_args()
    if options.release_version is not None:
        from barnabas.server.metadata.features import levels_of_release

        if options.command != "upgrade" or options.feature:
            parser.error("--release-version stands for the levels of an upgrade: give it without --feature")
        try:
            change(levels_of_release(options.release_version), options)
        except ValueError as error:
            parser.error(str(error))
        return
    if options.command in _CHANGES:
        if not options.feature:
            parser.error(f"{options.command} needs --feature NAME=LEVEL, or an upgrade --release-version VERSION")
        levels = split_pairs(options.feature, parser)
        if not all(level.isdigit() for level in levels.values()):
            parser.error("the level of a feature is a number, for example --feature kraft.version=1")
        change({name: int(level) for name, level in levels.items()}, options)
        return
    if options.command != "describe":
        parser.error(f"{options.command} is not supported: `describe` shows the levels, `upgrade` changes them")

    async def command(admin: AsyncAdmin) -> None:
        from barnabas.protocol.wire.messages.api_versions import ApiVersionsRequest
        from barnabas.server.metadata.features import METADATA_VERSION_NAMES

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


def change(levels: dict[str, int], options: argparse.Namespace) -> None:
    """Update all levels in one request; either all of them change or none."""

    async def command(admin: AsyncAdmin) -> None:
        from barnabas.core.errors import KafkaError, error_code
        from barnabas.protocol.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

        upgrade_type = 3 if options.command == "downgrade" and options.unsafe else _CHANGES[options.command]
        updates = [
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
            for name, level in levels.items()
        ]
        request = UpdateFeaturesRequest(feature_updates=updates, validate_only=options.dry_run)
        response = await admin.cluster.send_controller(request)
        for code, message in [(response.error_code, response.error_message)] + [
            (result.error_code, result.error_message) for result in response.results
        ]:
            if code:
                raise KafkaError(error_code(code), message)
        for name, level in levels.items():
            emit(f"{name} {'can be' if options.dry_run else 'was'} {options.command}d to {level}.")

    run_admin(options.bootstrap_server, command, client_settings(options))
