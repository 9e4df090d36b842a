"""Package sources: indexes, find-links, and their settings."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from os.path import exists, isdir, isfile
from pathlib import Path
from posixpath import dirname

from gpuinstall.base.advice import Hint, make_change, make_command
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import check_outside, real_path
from gpuinstall.base.location import (
    LINKS_FRAGMENT,
    Location,
    SourceKind,
    SourceOrigin,
    parse_source,
)
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.request import DEFAULT_SOURCING, Sourcing
from gpuinstall.base.requirement import Requirement, find_url_fault, is_http_url
from gpuinstall.base.text import redact, remove_logins, shorten, split_login
from gpuinstall.base.values import Value, replace
from gpuinstall.sources.addresses import (
    OFFICIAL,
    Addresses,
    make_export_commands,
)
from gpuinstall.sources.configuration import (
    check_owners,
    find_pip_files,
    read_local_variables,
    read_pip_files,
    read_pip_settings,
    read_policy,
    read_uv_configuration,
)
from gpuinstall.sources.credentials import Credentials, expand_login
from gpuinstall.sources.gate import Entry, Policy
from gpuinstall.sources.provenance import (
    BY_ADDRESS,
    FORMS,
    INDEXES,
    Effect,
    SourceSetting,
    create_setting,
)
from gpuinstall.sources.uv_settings import KeyList, Setting, UvSetting, UvSettings

_NO_INDEX = Path(__file__).with_name("no-index").as_uri()
"""The URL of an index without packages."""


class Sources(Value):
    """Addresses, uv settings, credentials, and the policy of one command."""

    addresses: Addresses = Addresses()
    uv: UvSettings = UvSettings()
    credentials: Credentials = Credentials()
    policy: Policy = Policy()

    pip: Mapping[Path, Mapping[str, str]] = {}
    """The options in pip's files. The last file has the highest precedence."""

    def __repr__(self) -> str:
        # A traceback must not show the logins.
        return f"Sources of {self.addresses.places}"

    def with_default_index(self, index: str | None) -> Sources:
        """Return the sources with another default index, or without one."""
        return replace(self, addresses=replace(self.addresses, default_index=index))

    def add_settings(
        self,
        settings: Collection[Setting],
        folder: Path | None = None,
        *,
        is_configuration: bool = False,
    ) -> Sources:
        """Add settings of files, variables, and the command line.

        Args:
            settings: The settings.
            folder: The folder to which their paths are relative. None: the working
                folder.
            is_configuration: Whether they are in configuration files, of which the
                first one has the highest precedence. Otherwise, they precede the
                configuration.

        Raises:
            UsageError: A setting is refused or malformed.
        """
        place = folder or Path.cwd()
        rows = [one for one in settings if isinstance(one, UvSetting)]
        located = [
            one.locate(place) if one.source.location.is_local else one
            for one in settings
            if isinstance(one, SourceSetting)
        ]
        files = [place / one.file for one in settings if not one.is_own]
        required = (one for one in located if one.key == BY_ADDRESS and not one.is_own)
        files += filter(None, (one.path for one in required))
        policy = check_owners(self.policy, files, place)
        uv = self.uv.add(rows, policy)
        addresses = self.addresses
        credentials = self.credentials
        for written in dict.fromkeys(_find_effects(addresses, located)):
            _check_form(written)
            setting = written
            if not (is_configuration or written.is_own):
                setting = _check_location(addresses, policy, written, place)
            addresses = addresses.add(setting, overrides=not is_configuration)
            if setting.effect.is_reported or setting.is_own:
                login = expand_login(setting.login)
                credentials = credentials.add(setting.value, login)
        return replace(
            self, addresses=addresses, uv=uv, credentials=credentials, policy=policy
        )


def apply_no_index(known: Sources) -> Sources:
    """Return the sources without indexes if ``no-index`` is set.

    An index of uv, or of an option, precedes pip's setting.
    """
    addresses = known.addresses
    indexes = addresses.list_settings(Effect.INDEX, Effect.EXTRA_INDEX)
    is_replaced = addresses.is_torch_index_requested or any(
        not one.is_of_pip for one in indexes
    )
    kept = tuple(
        one
        for one in known.uv.settings
        if not (one.key == "no-index" and one.is_of_pip and is_replaced)
    )
    if any(one.key == "no-index" for one in kept):
        addresses = replace(
            addresses,
            torch_index=_NO_INDEX,
            is_torch_index_requested=True,
            default_index=_NO_INDEX,
            unused_indexes=tuple(
                filter(None, (addresses.torch_index, addresses.default_index))
            ),
        )
    return replace(known, addresses=addresses, uv=replace(known.uv, settings=kept))


def find_unknown_index(
    addresses: Addresses, read_default: Callable[[], str | None]
) -> UsageError | None:
    """Return an error if another tool's file has an unknown index.

    Packages on that index would be installed from the default index.

    Args:
        addresses: The configured addresses.
        read_default: Returns the default index of the tools, which is allowed even
            if the user has configured a mirror.
    """
    demanded = addresses.list_settings(Effect.KNOWN_INDEX)
    if not demanded:
        return None
    known = addresses.index_locations | {Location.parse(read_default() or OFFICIAL)}
    unknown = [one for one in demanded if one.source.location not in known]
    if not unknown:
        return None
    hint = make_export_commands(dict.fromkeys(one.value for one in unknown))
    return _setting_error(unknown[0], hint)


def check_reported(addresses: Addresses, requirement: Requirement) -> None:
    """Check that a URL was reported to the user before its use."""
    url = requirement.url
    if url and parse_source(url).location not in addresses.locations:
        raise UsageError(
            "source-setting",
            f"the URL of {requirement.name} was not reported in advance: {redact(url)}",
            hint=make_command(
                "install", requirement.text, note="requests it by its URL"
            ),
        )


def _check_form(setting: SourceSetting) -> None:
    """Raise UsageError for a malformed value."""
    pattern, instead = FORMS.get(setting.effect, ("(?s:.*)", ""))
    is_expanded = setting.is_own or "${" not in setting.login
    if not (is_expanded and re.fullmatch(pattern, setting.value)):
        raise _setting_error(setting, f"Instead, {instead}")


def _find_effects(
    addresses: Addresses, settings: Sequence[SourceSetting]
) -> Iterator[SourceSetting]:
    """Yield settings, with the effect of indexes that are known otherwise.

    These are parts of the torch index, and indexes of the folder that the user
    configured.
    """
    own = {
        one.source.location
        for one in (*settings, *addresses.settings)
        if one.is_own and one.effect in INDEXES
    }
    torch = Location.parse(addresses.torch_index)
    for one in settings:
        effect = one.effect
        location = one.source.location
        if effect in INDEXES:
            if one.tag and replace(location, path=dirname(location.path)) == torch:
                effect = Effect.TORCH
            elif not one.is_own and location in own:
                effect = Effect.NAME
        yield replace(one, effect=effect)


def _check_location(
    addresses: Addresses, policy: Policy, setting: SourceSetting, folder: Path
) -> SourceSetting:
    """Check a setting's path, and mark a setting of the user.

    Raises:
        UsageError: The setting has a path of another user, or a second default
            index.
    """
    effect = setting.effect
    if effect is Effect.INDEX:
        for other in addresses.folder_sources:
            if other.key == setting.key and other.value != setting.value:
                hint = f"Instead, use one default index; another one is {other.value}"
                raise _setting_error(setting, hint)
    if effect in {Effect.LOCATED, Effect.FIND_LINKS}:
        path = setting.path
        is_inside = path and path.is_relative_to(real_path(folder))
        if effect is Effect.LOCATED and is_inside:
            # A trusted project was already checked, unlike the files in an archive.
            is_own = policy.trusts_folder and not isfile(path or "")
            return replace(setting, is_own=is_own)
        # A missing folder does not matter if ``sync --wheels`` has the files.
        if path and (exists(path) or not is_inside):
            file = folder / setting.file
            check_outside(path, file if exists(file) else folder, setting.place)
    return setting


def check_build(sources: Sources, package: str, name: str) -> None:
    """Raise UsageError if a package on an untrusted index would be built.

    Args:
        sources: The sources, with a default index.
        package: The package, with its version.
        name: The name of the package.
    """
    policy = sources.policy
    for index in sources.addresses.find_indexes(name)[:1]:
        is_own = name in policy.requested
        origin = SourceOrigin.USER if is_own else SourceOrigin.FOLDER
        source = parse_source(index, kind=SourceKind.SDIST, origin=origin)
        policy.check([Entry(source, f"{shorten(package)} from {index}")])


def report_folder_sources(sources: Sources, reporter: Reporter) -> None:
    """Report the sources that the folder selects, even with ``--quiet``.

    Raises:
        UsageError: The user does not trust the folder to select sources.
    """
    selected = sources.addresses.folder_sources
    sources.policy.check(map(_make_entry, selected))
    for setting in selected:
        is_local = setting.source.location.is_local
        has_login = not is_local and sources.credentials.has(setting.value)
        login = "; credentials are sent to it" if has_login else ""
        reporter.notice("Index", f"{setting}{login}")


def _make_entry(setting: SourceSetting) -> Entry:
    """Convert a folder's setting to an entry for the checks in ``gate``."""
    is_address = setting.key == BY_ADDRESS
    shown = shorten(setting.value) if is_address else setting.key
    return Entry(setting.source, f"{setting.file}: {shown}")


def report_ignored_settings(sources: Sources, reporter: Reporter) -> None:
    """Report ignored settings, and warn about unknown ones."""
    settings: list[SourceSetting | UvSetting] = [*sources.addresses.settings]
    settings += sources.uv.settings
    # Each extra and group has the project's sources.
    explained = {
        (one.key, one.file.absolute(), one.line, one.ignore_reason): one
        for one in settings
    }
    for one in explained.values():
        reason = f"{one.shown}: {one.ignore_reason}"
        if isinstance(one, UvSetting) and one.list is KeyList.UNKNOWN:
            reporter.warn(reason)
        elif one.ignore_reason:
            label = "Index" if one.key == "no-index" else "Ignored"
            reporter.step(label, reason)
    for row in sources.uv.settings:
        if names := sources.uv.list_family_rows(row):
            reporter.step(
                "Ignored",
                f"{row.shown}: {', '.join(names)} is selected with the build; --into keeps an environment's own torch",
            )


def read_sources(
    torch_index: str | None,
    folder: Path,
    *,
    configured: str | None = None,
    sourcing: Sourcing = DEFAULT_SOURCING,
) -> Sources:
    """Read the package sources that apply in a folder.

    Args:
        torch_index: The user's torch index.
        folder: The working folder.
        configured: The project's torch index, used if the user has none.
        sourcing: The user's options for indexes.

    Raises:
        UsageError: A URL or a configuration file is malformed.
    """
    index = torch_index or configured
    read = list[Setting]()
    if configured and not torch_index:
        file = folder / "pyproject.toml"
        read.append(create_setting(Effect.TORCH_INDEX, "torch-index", configured, file))
    pip = read_pip_files(find_pip_files())
    read += read_uv_configuration(folder, sourcing)
    read += read_pip_settings(pip, folder)
    folders = os.environ.get("SSL_CERT_DIR", "").split(os.pathsep)
    certificates = (
        os.environ.get("SSL_CERT_FILE"),
        os.pathsep.join(filter(isdir, folders)),
        os.environ.get("REQUESTS_CA_BUNDLE"),
        *(one.value for one in read if one.is_own and one.key == "cert"),
    )
    credentials = Credentials(
        certificates=next(filter(None, certificates), None),
        variables=read_local_variables(),
    ).add(*split_login(index or OFFICIAL))
    sources = Sources(
        Addresses(
            validate_torch_index(index),
            bool(index),
            mirror=os.environ.get("GPUINSTALL_EXTENSION_INDEX", ""),
        ),
        credentials=credentials,
        policy=read_policy(folder),
        pip=pip,
    )
    return sources.add_settings(read, folder, is_configuration=True)


def validate_torch_index(requested: str | None) -> str:
    """Return the URL of the requested torch index, or of the official one.

    Raises:
        UsageError: The requested index is not a URL.
    """
    if not requested:
        return OFFICIAL
    if not is_http_url(requested) or find_url_fault(requested):
        note = "the URL above <backend>/<package>/"
        change = make_change("--torch-index", "https://index.example/whl", note=note)
        raise UsageError(
            "torch-index",
            f"the torch index {requested!r} is not a URL",
            hint=(change, "Set UV_FIND_LINKS instead if it is a folder of wheels"),
        )
    return remove_logins(requested.rstrip("/"))


def _setting_error(setting: SourceSetting, hint: Hint | tuple[Hint, ...]) -> UsageError:
    package = f" for {setting.package}" if setting.package else ""
    value = setting.value.removesuffix(LINKS_FRAGMENT)
    return UsageError(
        "source-setting",
        f"{setting.place}: {setting.key}{package}{value and f' = {value}'} cannot be applied",
        why="this setting selects package sources or files; ignoring it could install different files",
        hint=hint,
    )
