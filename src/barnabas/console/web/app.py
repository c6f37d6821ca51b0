"""Shell: the ASGI application: routes of pages, of their JSON twins, and of changes; login and logout.

    GET  /topics/orders          the page             GET  /api/topics/orders          its document as JSON
    POST /topics/orders/config   a form               POST /api/topics/orders/config   the same as JSON

A form answers with a redirect and a notice, or with JSON if the request accepts only JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from barnabas.console.access.audit import AuditLog
from barnabas.console.access.gate import CSRF_FIELD, CSRF_HEADER, Gate, Visit
from barnabas.console.access.sessions import LIFETIME_MS, Signer
from barnabas.console.access.users import Role, User, parse_users
from barnabas.console.changes.change import Change, Outcome
from barnabas.console.errors import BadInputError, NotAllowedError, NotFoundError
from barnabas.console.settings import ConsoleSettings
from barnabas.console.sources import Call, Sources
from barnabas.console.web.live import LiveViews, download_lines, live_events
from barnabas.console.web.pages import CHANGES, NAVIGATION, PAGES, Page
from barnabas.console.web.rendering import make_environment
from barnabas.console.web.responses import (
    BODY_LIMITS,
    LOGIN_BYTES_MAX,
    HeadersMiddleware,
    read_fields,
    refused,
    status_of,
)
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.errors import BarnabasError
from barnabas.core.telemetry import get_logger
from barnabas.protocol.transport.http.doors import HttpDoors
from barnabas.protocol.transport.http.gate import HttpGate
from barnabas.protocol.transport.http.logins import Logins, decode_basic
from barnabas.protocol.transport.http.users import UsersFile

log = get_logger("barnabas.console")

SESSION_COOKIE: Final = "barnabas_session"
NOTICE_COOKIE: Final = "barnabas_notice"
REQUEST_S: Final = 60.0
"""The longest time of one page or change; a live view and a download have limits of their own."""
Endpoint = Callable[[Request], Awaitable[Response]]


class ConsoleApp:
    """Builds the Starlette application. Its clients live from the start to the end of the application."""

    def __init__(self, settings: ConsoleSettings, *, clock: Clock | None = None) -> None:
        self.settings = settings
        self._clock = clock or SystemClock()
        self._users = None if settings.users_file is None else UsersFile(settings.users_file, parse_users)
        self._logins = None if self._users is None else Logins(self._users, self._clock.monotonic)
        users = None if self._users is None else self._users.users
        self._gate = Gate(Signer(secrets.token_bytes(32)), users, is_read_only=settings.is_read_only)
        self._audit = AuditLog(settings.audit_file)
        self._templates = make_environment()
        self._live = LiveViews(settings.browse.live_views)
        self.sources: Sources | None = None
        routes = [
            Mount("/static", StaticFiles(packages=[("barnabas.console.web", "static")]), name="static"),
            Route("/login", self._endpoint(self._login_page), methods=["GET"]),
            Route("/login", self._endpoint(self._login), methods=["POST"]),
            Route("/logout", self._endpoint(self._logout), methods=["POST"]),
            Route("/api/session", self._endpoint(self._session), methods=["GET"]),
            Route("/topics/{topic}/live", self._endpoint(self._events), methods=["GET"]),
            Route("/topics/{topic}/download", self._endpoint(self._download), methods=["GET"]),
        ]
        for change in CHANGES:
            endpoint = self._endpoint(self._changing(change))
            routes += [Route(prefix + change.path, endpoint, methods=["POST"]) for prefix in ("", "/api")]
        for page in PAGES:
            routes.append(Route(page.path, self._endpoint(self._showing(page)), methods=["GET"]))
            twin = "/api" + page.path if page.path != "/" else "/api/overview"
            routes.append(Route(twin, self._endpoint(self._document(page)), methods=["GET"]))
        self._pages = Starlette(
            routes=routes,
            middleware=[Middleware(HeadersMiddleware)],
            lifespan=self._lifespan,
            exception_handlers={404: self._on_missing, 405: self._on_missing, 500: self._on_bug},
        )
        doors = HttpDoors(None if self._gate.has_login else (), content_types=None)
        self.app = HttpGate(self._pages, doors, limits=BODY_LIMITS, refuse=refused)

    def running(self) -> contextlib.AbstractAsyncContextManager[None]:
        """The clients of the application live in this context, for a server without ASGI's lifespan."""
        return self._lifespan(self._pages)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        digest = Signer(secrets.token_bytes(32))
        async with (
            Sources(self.settings, self._clock, lambda text: digest.digest("mask", text)) as sources,
            asyncio.TaskGroup() as tasks,
        ):
            self.sources = sources
            sampling = tasks.create_task(sources.sampler.run(), name="console sampler")
            try:
                yield
            finally:
                sampling.cancel()
                self._audit.close()

    # -- every request -------------------------------------------------------------------------------------------------

    def _endpoint(self, handle: Callable[[Request, Visit], Awaitable[Response]]) -> Endpoint:
        """Wrap a handler: the visit, errors as pages or JSON, and the cookie of a new session."""

        async def endpoint(request: Request) -> Response:
            visit = None
            try:
                visit = await self._visit(request)
                response = await handle(request, visit)
            except (BarnabasError, TimeoutError) as error:
                response = self._error(request, visit, error)
            if visit is not None and visit.new_cookie is not None:
                self._set_cookie(request, response, SESSION_COOKIE, visit.new_cookie, LIFETIME_MS // 1000)
            return response

        return endpoint

    async def _visit(self, request: Request) -> Visit:
        now_ms, new_id = self._clock.now_ms(), secrets.token_urlsafe(24)
        visit = self._gate.visit(request.cookies.get(SESSION_COOKIE), now_ms, new_id)
        given = decode_basic(request.headers.get("authorization", ""))
        if given is None or self._logins is None:
            return visit
        user = await self._user(*given, _address(request))
        if user is None:
            raise NotAllowedError("The name or the password is wrong.")
        return Visit(user, visit.session, visit.csrf_token, None, is_basic=True)

    async def _user(self, name: str, password: str, address: str) -> User | None:
        """The user, if the password is right. Raises TooManyLoginsError."""
        assert self._logins is not None
        return self._gate.user(name) if await self._logins.accepts(name, password, address) else None

    def _call(self, request: Request, visit: Visit, fields: dict[str, str] | None = None) -> Call:
        assert visit.user is not None and self.sources is not None
        given = dict(request.query_params) if fields is None else fields
        return Call(self.sources, visit.user, request.path_params, given, self._clock.now_ms())

    def _error(self, request: Request, visit: Visit | None, error: BaseException) -> Response:
        is_timeout = isinstance(error, TimeoutError) and not isinstance(error, BarnabasError)
        text = "The cluster took too long to answer." if is_timeout else str(error)
        status = status_of(error) if isinstance(error, BarnabasError) else 504
        if self._wants_json(request):
            return JSONResponse({"error": text}, status)
        if request.method == "POST" and visit is not None and visit.user is not None:
            return self._redirect(request, _referrer(request), "bad", text)
        return self._page(request, visit, "error.html", "Error", {"status": status, "message": text}, status=status)

    async def _on_missing(self, request: Request, error: Exception) -> Response:
        wrapped = self._endpoint(self._missing)
        return await wrapped(request)

    async def _missing(self, request: Request, visit: Visit) -> Response:
        raise NotFoundError(f"There is no page {request.url.path!r}.")

    async def _on_bug(self, request: Request, error: Exception) -> Response:
        log.error("a page failed", path=request.url.path, error=repr(error))
        return JSONResponse({"error": "The console has a bug in this page; its log has the details."}, 500)

    @staticmethod
    def _wants_json(request: Request) -> bool:
        accepted = request.headers.get("accept", "")
        return request.url.path.startswith("/api/") or accepted.startswith("application/json")

    # -- pages ---------------------------------------------------------------------------------------------------------

    def _showing(self, page: Page) -> Callable[[Request, Visit], Awaitable[Response]]:
        async def show(request: Request, visit: Visit) -> Response:
            if visit.user is None:
                return RedirectResponse("/login", 303)
            async with asyncio.timeout(REQUEST_S):
                document = await page.document(self._call(request, visit))
            title = page.title.format_map(request.path_params)
            return self._page(request, visit, page.template, title, document, tab=page.tab)

        return show

    def _document(self, page: Page) -> Callable[[Request, Visit], Awaitable[Response]]:
        async def send(request: Request, visit: Visit) -> Response:
            self._require_user(visit)
            async with asyncio.timeout(REQUEST_S):
                document = await page.document(self._call(request, visit))
            document.pop("charts", None)  # drawn for people; the numbers are in the rest
            return JSONResponse(document)

        return send

    @staticmethod
    def _require_user(visit: Visit) -> None:
        if visit.user is None:
            raise NotAllowedError("Log in first, or send a name and password with HTTP Basic.")

    def _page(
        self,
        request: Request,
        visit: Visit | None,
        template: str,
        title: str,
        document: dict[str, Any],
        *,
        tab: str = "",
        status: int = 200,
    ) -> Response:
        user = None if visit is None else visit.user
        notice = self._gate.signer.verified("notice", request.cookies.get(NOTICE_COOKIE))
        context = {
            "doc": document,
            "title": title,
            "tab": tab,
            "path": request.url.path,
            "given": dict(request.query_params),
            "user": user,
            "has_login": self._gate.has_login,
            "can_edit": user is not None and user.role >= Role.EDITOR and not self._gate.is_read_only,
            "can_admin": user is not None and user.role >= Role.ADMIN and not self._gate.is_read_only,
            "read_only": self._gate.is_read_only,
            "csrf": "" if visit is None else visit.csrf_token,
            "notice": notice,
            "navigation": self._navigation() if user is not None else (),
            "cluster": str(self.settings.client["bootstrap.servers"]),
            "now_ms": self._clock.now_ms(),
        }
        response = HTMLResponse(self._templates.get_template(template).render(context), status)
        if notice is not None:
            response.delete_cookie(NOTICE_COOKIE)
        return response

    def _navigation(self) -> list[tuple[str, list[Any]]]:
        there = {
            "registry": self.settings.registry_url is not None,
            "connect": self.settings.connect_url is not None,
            "pipelines": self.settings.pipelines is not None,
            "mirror": self.settings.mirror is not None,
        }
        return [
            (heading, [entry for entry in entries if not entry.needs or there[entry.needs]])
            for heading, entries in NAVIGATION
        ]

    async def _session(self, request: Request, visit: Visit) -> Response:
        """Who the user is, and the token for changes."""
        self._require_user(visit)
        assert visit.user is not None
        return JSONResponse(
            {
                "user": visit.user.name or None,
                "role": visit.user.role.name.lower(),
                "read_only": self._gate.is_read_only,
                "csrf": visit.csrf_token,
            }
        )

    async def _events(self, request: Request, visit: Visit) -> Response:
        self._require_user(visit)
        return StreamingResponse(live_events(self._call(request, visit), self._live), media_type="text/event-stream")

    async def _download(self, request: Request, visit: Visit) -> Response:
        self._require_user(visit)
        call = self._call(request, visit)
        lines = download_lines(call)
        first = await anext(lines, b"")  # an error of the query is an answer, not a broken download

        async def body() -> AsyncIterator[bytes]:
            yield first
            async for one in lines:
                yield one

        name = "".join(c if c.isalnum() or c in "._-" else "_" for c in call.path["topic"])
        headers = {"content-disposition": f'attachment; filename="{name}.jsonl"'}
        return StreamingResponse(body(), media_type="application/x-ndjson", headers=headers)

    # -- changes -------------------------------------------------------------------------------------------------------

    def _changing(self, change: Change) -> Callable[[Request, Visit], Awaitable[Response]]:
        async def make(request: Request, visit: Visit) -> Response:
            if visit.user is None:  # nothing of a stranger's body is read
                raise NotAllowedError("You are not logged in any more: log in, and repeat the change.")
            fields = await read_fields(request)
            token = request.headers.get(CSRF_HEADER) or fields.pop(CSRF_FIELD, "")
            call = None
            try:
                self._gate.check_change(visit, change.role, token, is_check=change.is_check)
                call = self._call(request, visit, fields)
                async with asyncio.timeout(REQUEST_S):
                    outcome = await change.run(call)
            except (BarnabasError, TimeoutError, ValueError) as error:
                if not change.is_check:
                    self._log(request, visit, change, fields, str(error) or type(error).__name__)
                if isinstance(error, ValueError) and not isinstance(error, BarnabasError):
                    raise BadInputError(str(error)) from error
                raise
            if not change.is_check:
                self._log(request, visit, change, fields, "")
                call.sources.sampler.wake()
            return self._done(request, outcome)

        return make

    def _log(self, request: Request, visit: Visit, change: Change, fields: dict[str, str], error: str) -> None:
        self._audit.write(
            time=datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(timespec="milliseconds"),
            user="" if visit.user is None else visit.user.name,
            address=_address(request),
            change=change.name,
            fields={**{name: str(value) for name, value in request.path_params.items()}, **change.logged(fields)},
            error=error[:1_000],
        )

    def _done(self, request: Request, outcome: Outcome) -> Response:
        if self._wants_json(request):
            notice = self._gate.signer.sign("notice", {"level": "good", "text": outcome.text[:600]})
            response = JSONResponse({"message": outcome.text, "link": outcome.link, **outcome.document})
            if not request.url.path.startswith("/api/"):  # console.js goes to the link, which shows the notice
                self._set_cookie(request, response, NOTICE_COOKIE, notice, 60)
            return response
        return self._redirect(request, outcome.link, "good", outcome.text)

    def _redirect(self, request: Request, link: str, level: str, text: str) -> Response:
        response = RedirectResponse(link, 303)
        notice = self._gate.signer.sign("notice", {"level": level, "text": text[:600]})
        self._set_cookie(request, response, NOTICE_COOKIE, notice, 60)
        return response

    def _set_cookie(self, request: Request, response: Response, name: str, value: str, max_age_s: int) -> None:
        secure = request.url.scheme == "https"
        response.set_cookie(name, value, max_age=max_age_s, httponly=True, samesite="lax", secure=secure)

    # -- login ---------------------------------------------------------------------------------------------------------

    async def _login_page(self, request: Request, visit: Visit) -> Response:
        if visit.user is not None:
            return RedirectResponse("/", 303)
        return self._page(request, visit, "login.html", "Log in", {"error": ""})

    async def _login(self, request: Request, visit: Visit) -> Response:
        if self._logins is None:
            raise NotFoundError("This console has no login.")
        fields = await read_fields(request, LOGIN_BYTES_MAX)
        error = "The name or the password is wrong."
        if not self._gate.signer.is_csrf_token(visit.session, fields.get(CSRF_FIELD, "")):
            error = "The form has expired: try again."
        elif (
            user := await self._user(fields.get("user", ""), fields.get("password", ""), _address(request))
        ) is not None:
            cookie = self._gate.log_in(user, secrets.token_urlsafe(24), self._clock.now_ms())
            response = RedirectResponse("/", 303)
            self._set_cookie(request, response, SESSION_COOKIE, cookie, LIFETIME_MS // 1000)
            return response
        return self._page(request, visit, "login.html", "Log in", {"error": error}, status=403)

    async def _logout(self, request: Request, visit: Visit) -> Response:
        fields = await read_fields(request, LOGIN_BYTES_MAX)
        if not self._gate.signer.is_csrf_token(visit.session, fields.get(CSRF_FIELD, "")):
            raise NotAllowedError("The form has expired: load the page again.")
        self._gate.log_out(visit.session)
        response = RedirectResponse("/login", 303)
        response.delete_cookie(SESSION_COOKIE)
        return response


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


def _referrer(request: Request) -> str:
    """The path of the page with the form, on this console; the overview if it is not known."""
    parts = urlsplit(request.headers.get("referer", ""))
    if parts.netloc != request.headers.get("host", "") or not parts.path.startswith("/"):
        return "/"
    path = "/" + parts.path.lstrip("/")
    return path + (f"?{parts.query}" if parts.query else "")
