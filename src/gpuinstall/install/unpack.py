"""Download, build, and unpack new packages into a staging folder with uv."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from os.path import exists, islink
from pathlib import Path

from gpuinstall.base import uv
from gpuinstall.base.advice import Advice, make_command
from gpuinstall.base.environment_paths import (
    EnvironmentPaths,
    interpreter,
    packages_folders,
    relative_prefix,
)
from gpuinstall.base.errors import InstallationError, LockError
from gpuinstall.base.files import leads_outside, real_path, write_atomically
from gpuinstall.base.removal import remove_file, remove_path
from gpuinstall.base.requirement import is_http_url
from gpuinstall.base.values import replace
from gpuinstall.environments.damage import find_damage
from gpuinstall.environments.environment import is_virtual, read_python_version
from gpuinstall.environments.guard import (
    CONSTRAINTS,
    FamilyMember,
    find_guard_obstacle,
    format_constraints,
    is_own_guard_file,
    write_guard,
)
from gpuinstall.environments.ownership import find_misplaced_file
from gpuinstall.environments.packages import (
    InstalledPackage,
    find_required_names,
    find_written_files,
    read_packages,
)
from gpuinstall.install.price import (
    UNPACKED,
    PlannedInstallation,
    UnpackedPackages,
    find_builds,
)
from gpuinstall.install.state import ExistingEnvironment
from gpuinstall.lock.file.fit import CompatibleLock
from gpuinstall.lock.file.lock import Lock, select_versions
from gpuinstall.lock.resolve.members import find_missing_members
from gpuinstall.lock.uv.builds import (
    create_sync_settings,
    create_sync_variables,
    create_torch_entry,
    report_builds,
)
from gpuinstall.lock.uv.errors import find_mentioned_names
from gpuinstall.lock.uv.fetch import (
    LockInstaller,
    find_build_index,
    parse_file_url,
    run_uv,
)
from gpuinstall.machine.pythons import find_python
from gpuinstall.project import Project
from gpuinstall.sources.configuration import PIP_NAME, find_pip_values, read_pip_files
from gpuinstall.sources.session import Session
from gpuinstall.wheels.learned.reader import OF_WHEEL


def unpack_packages(planned: PlannedInstallation, project: Project) -> UnpackedPackages:
    """Unpack new packages into the staging folder, and write the lock file.

    Args:
        planned: The lock file and the change.
        project: The project.

    Raises:
        InstallationError: A package cannot be installed, is damaged, or contains a forbidden file.
    """
    existing = planned.existing
    place = existing.paths
    session = project.open_session()
    fit = planned.fit
    staging = place.staging
    remove_path(staging)
    staging.mkdir(parents=True)
    python: Path | None = interpreter(staging)
    if planned.change.is_rebuild:
        from gpuinstall.environments.activation import relocate_activation

        _create_environment(fit, staging, project)
        relocate_activation(staging)
    elif planned.change.comes or existing.lacks_pip:
        try:
            _create_overlay_environment(place, staging, session)
        except InstallationError:
            # A portable Python may be unable to create a virtual environment.
            if _is_staging_relocatable(place):
                raise
            python = None
    keeps_guard = not planned.change.is_rebuild and _is_guard_kept(
        existing, fit, project
    )
    packages: tuple[InstalledPackage, ...] = ()
    with ThreadPoolExecutor(2) as pool:
        # Query the index and import a slow module in parallel.
        pool.submit(import_module, "gpuinstall.verify.files")
        if not keeps_guard:
            absent = pool.submit(
                find_missing_members,
                fit,
                project.catalog,
                sources=session.sources,
                client=session.client,
            )
        if planned.change.comes:
            fit = _unpack_all(planned, project)
            packages = _check_files(planned, project)
            _check_python(packages, planned)
            _cache_metadata(packages, fit.lock, project)
        if existing.lacks_pip and not planned.change.is_rebuild:
            _install_pip(place.find_interpreter(), staging, session)
            staged = read_packages(packages_folders(staging))
            packages += tuple(package for package in staged if package.name == "pip")
        if not keeps_guard:
            _write_guard(fit, absent.result(), planned.change.comes, existing, project)
    if place.is_managed:
        # The commit flushes all files of the environment.
        write_atomically(staging / fit.lock.name, fit.lock.text, is_cached=True)
    return UnpackedPackages(replace(planned, fit=fit), python, packages)


def _check_python(
    packages: Iterable[InstalledPackage], planned: PlannedInstallation
) -> None:
    """Check that the new packages support the environment's interpreter.

    The lock file of a target is for every release of its Python.

    Raises:
        LockError: A package requires another release.
    """
    existing = planned.existing
    python = existing.python_version
    if planned.change.is_rebuild:
        python = read_python_version(existing.paths.staging)
    for package in packages:
        required = package.read_required_python()
        if python.count(".") > 1 and not required.contains(python, prereleases=True):
            raise LockError(
                "python-unsupported",
                f"{package.name} {package.version} requires Python {required}, but {existing.paths.venv} has Python {python}",
                why=f"{planned.fit.lock.name} was written for another release of Python",
                hint=make_command("install", "--upgrade-package", package.name),
            )


def _cache_metadata(
    packages: Iterable[InstalledPackage], lock: Lock, project: Project
) -> None:
    """Cache METADATA of torch's packages for later changes."""
    client = project.open_session().client
    files = {file.package: file for file in lock.files}
    for package in packages:
        file = files.get(package.name)
        if file and file.sha256 and package.name in project.catalog.family:
            text = (package.record / "METADATA").read_text("utf-8", "replace")
            client.cache_text(f"{file.url} {OF_WHEEL}", file.sha256, text)


def _create_overlay_environment(
    place: EnvironmentPaths, staging: Path, session: Session
) -> None:
    """Create an environment that also finds another environment's packages.

    Args:
        place: The other environment.
        staging: The new environment's folder, which may already contain packages.
        session: The clients of this command.
    """
    python = place.find_interpreter()
    if is_virtual(place.venv) and python == place.venv / "bin" / "python":
        # This is faster than uv venv (0.1 s). On Windows, python.exe is uv's launcher.
        interpreter(staging).parent.mkdir(exist_ok=True)
        # The interpreter of a venv is a relative link.
        interpreter(staging).symlink_to(real_path(python))
        if islink(place.venv / "lib64"):
            (staging / "lib64").symlink_to("lib")
        configuration = (place.venv / "pyvenv.cfg").read_bytes()
        # uv writes the interpreter's path into scripts otherwise.
        configuration += b"\nrelocatable = true\n"
        (staging / "pyvenv.cfg").write_bytes(configuration)
        for folder in place.find_packages_folders():
            (staging / relative_prefix(folder, place.venv)).mkdir(
                parents=True, exist_ok=True
            )
    else:
        run_uv(uv.venv_command(python, staging), session)
    folders = [str(folder) for folder in place.find_search_path()]
    # uv parses the output of this interpreter, to which startup files can print.
    words = (
        "import site, sys; out, sys.stdout = sys.stdout, sys.stderr",
        f"[*map(site.addsitedir, {folders!r})]",
        "site.execsitecustomize()",
        "sys.stdout = out",
    )
    others = packages_folders(staging)[0] / "zz_others.pth"
    write_atomically(others, f"{'; '.join(words)}\n", is_cached=True)


def _is_staging_relocatable(place: EnvironmentPaths) -> bool:
    """Return whether moved scripts start the environment's interpreter.

    Relocatable scripts start the ``python`` in their own folder. A portable Python on Windows
    has its scripts in another folder.
    """
    scripts = place.root / place.path_below_root("bin/")
    python = scripts / interpreter(place.staging).name
    return place.is_managed or (
        exists(python) and python.samefile(place.find_interpreter())
    )


def _create_environment(
    fit: CompatibleLock,
    venv: Path,
    project: Project,
) -> None:
    """Create an empty environment with pip, for use in activated shells.

    Args:
        fit: The lock file, which selects the Python version.
        venv: The folder.
        project: The project, whose settings may select the interpreter.
    """
    session = project.open_session()
    base = project.settings.base_python or _find_base_python(fit.choice.python, session)
    run_uv(uv.venv_command(base, venv), session)
    _install_pip(base, venv, session)


def _install_pip(base: Path, venv: Path, session: Session) -> None:
    """Install pip, preferably the version bundled with the base interpreter.

    Args:
        base: The base interpreter.
        venv: The environment.
        session: The clients of this command.
    """
    try:
        carried = find_bundled_pip(base)
        source = ["--only-binary", "pip", "pip"]
        if carried:
            source = ["--no-index", str(carried)]
        words = ("--quiet", "--no-deps", *source)
        run_uv(uv.pip_command("install", interpreter(venv), *words), session)
    except InstallationError as error:
        reason = error.message if error.code == "offline" else error.why
        text = f"pip was not installed into the environment: {reason or error.message}"
        session.reporter.warn(f"{text}; gpuinstall and uv do not need it")


def _is_guard_kept(
    existing: ExistingEnvironment, fit: CompatibleLock, project: Project
) -> bool:
    """Return whether the constraints for pip and uv need no update.

    Args:
        existing: The environment.
        fit: The lock file.
        project: The project.
    """
    if find_guard_obstacle(existing.paths):
        return True
    family = project.catalog.family
    before = {
        name: existing.versions[name] for name in family & existing.versions.keys()
    }
    is_own = is_own_guard_file(existing.paths.venv / CONSTRAINTS)
    return is_own and before == select_versions(fit.lock, family)


def _write_guard(
    fit: CompatibleLock,
    members: Iterable[FamilyMember],
    comes: Collection[str],
    existing: ExistingEnvironment,
    project: Project,
) -> None:
    """Write constraints that keep pip and uv from replacing the locked builds.

    Args:
        fit: The lock file.
        members: The PyTorch family's packages that are not in the lock file.
        comes: The new packages.
        existing: The environment.
        project: The project.
    """
    place = existing.paths
    versions = select_versions(fit.lock, project.catalog.family)
    # The installed version of a kept package may lack its build label.
    staying = existing.find_packages(versions.keys() - comes)
    versions |= {package.name: package.version for package in staying}
    absent = []
    for member in members:
        if member.version and member.version == existing.versions.get(member.name):
            # pip would reinstall the same version from a URL.
            versions[member.name] = member.version
        else:
            absent.append(member)
    own = read_pip_files([place.venv / PIP_NAME])
    write_guard(
        place.staging,
        source=fit.lock.name if place.is_managed else f"torch=={versions['torch']}",
        lines=format_constraints(versions, absent, fit.choice.build.backend.tag),
        constraints=find_pip_values({**project.sources.pip, **own}, "constraint"),
    )


def _check_files(
    planned: PlannedInstallation, project: Project
) -> tuple[InstalledPackage, ...]:
    """Check that the new packages are complete and write no forbidden file.

    Raises:
        InstallationError: A package is damaged or contains a forbidden file.
    """
    place = planned.existing.paths
    names = planned.change.comes
    staging = place.staging
    packages = _replace_damaged(planned, project)
    new = tuple(package for package in packages if package.name in names)
    for package in new:
        fault = find_misplaced_file(package, staging)
        if fault:
            others = f"{package.name}!={package.version}"
            raise InstallationError(
                "foreign-files",
                fault,
                hint=make_command(
                    "install", others, note="another version, or omit the package"
                ),
            )
    return new


def _replace_damaged(
    planned: PlannedInstallation, project: Project
) -> tuple[InstalledPackage, ...]:
    """Compare the unpacked packages with RECORD, and replace damaged ones.

    Environments and uv's cache can share files, so that an edit changes all of them.

    Returns:
        The packages in the staging folder.

    Raises:
        InstallationError: A package is damaged and cannot be downloaded again.
    """
    staging = planned.existing.paths.staging
    packages = read_packages(packages_folders(staging))
    damages = {damage.package: damage for damage in find_damage(packages)}
    if not damages:
        return packages
    names = {package.name for package in damages}
    clean = ("cache", "clean", *sorted(names))
    session = project.open_session()
    if not session.sourcing.offline:
        run_uv([str(uv.uv()), *clean], session)
        _remove_staged(damages, staging)
        _unpack_into_staging(names, planned, project)
        packages = read_packages(packages_folders(staging))
    for damage in find_damage(packages):
        raise InstallationError(
            "cache-damaged",
            damage.message,
            why="uv's cache has the same file, because environments share its files",
            hint=Advice("uv", clean, note="then run it again with a network"),
        )
    return packages


def _remove_staged(packages: Iterable[InstalledPackage], staging: Path) -> None:
    """Remove packages from the staging folder, to install them again."""
    for package in packages:
        for name in find_written_files(package, staging):
            if not leads_outside(name):
                remove_file(staging / name)
        remove_path(package.record)


def _unpack_all(planned: PlannedInstallation, project: Project) -> CompatibleLock:
    """Unpack all new packages into the staging folder.

    Packages to build that only the lock file introduces are unpacked separately, because
    uv passes the same variables to all builds of one command.

    Returns:
        The lock file, to which missing hashes were added, and its plan.
    """
    existing = planned.existing
    introduced = set(planned.introduced.intersection(planned.change.comes))
    names = set(planned.change.comes) - introduced
    while True:
        if names:
            lock = _unpack_into_staging(names, planned, project)
            planned = replace(planned, fit=replace(planned.fit, lock=lock))
        introduced -= names
        if not introduced:
            return planned.fit
        # The metadata of requested packages may require more of these packages.
        unpacked = read_packages(packages_folders(existing.paths.staging))
        installed = {one.name: one for one in (*existing.packages, *unpacked)}
        names = find_required_names(planned.requested, installed) & introduced
        if not names:
            break
        builds, site = find_builds(planned, names, project)
        report_builds(builds, site, project.reporter)
    lock = _unpack_into_staging(introduced, planned, project, is_introduced=True)
    return replace(planned.fit, lock=lock)


def _unpack_into_staging(
    names: Collection[str],
    planned: PlannedInstallation,
    project: Project,
    *,
    is_introduced: bool = False,
) -> Lock:
    """Unpack some packages, and add missing hashes to the lock file.

    Args:
        names: The packages.
        planned: The lock file and the change.
        project: The project.
        is_introduced: Whether only the lock file introduces these packages.
    """
    session = project.open_session()
    place = planned.existing.paths
    fit = planned.fit
    builds, site = find_builds(planned, names, project)
    # Isolated builds must use the same torch as the environment.
    constraints = session.scratch / "build-constraints.txt"
    write_atomically(
        constraints, f"{_format_torch_requirement(fit.lock)}\n", is_cached=True
    )
    index = find_build_index(fit.choice, session.sources.addresses.torch_index)
    settings = session.scratch / "uv.toml"
    private_lock = session.scratch / "pylock.private.toml"
    wheels = project.sourcing.wheels
    folder = place.folder if place.is_managed else session.folder
    transfer = LockInstaller(
        fit.lock,
        folder,
        names,
        index,
        private_lock,
        given=uv.BuildVariables(
            is_introduced=is_introduced,
            passed=project.sources.policy.pass_build_variables,
        ),
        built=[build.package for build in builds],
        missing=planned.sizes.missing,
        heads=planned.heads,
        wheels=wheels,
        unpacked=UNPACKED,
    )
    words = ["--no-deps", "--requirements", str(private_lock)]
    # UV_BUILD_CONSTRAINT is a list that is split at spaces.
    words += ["--build-constraints", str(constraints)]
    words += ["--config-file", str(settings)]
    if wheels:
        # Lock files do not contain build requirements.
        words += ["--find-links", str(wheels)]
    for package in fit.lock.pylock.packages:
        source = package.directory
        if source and real_path(folder / source.path) in project.requested_folders:
            # uv would reuse an earlier build of the folder. It has no --refresh offline.
            run_uv([str(uv.uv()), "cache", "clean", package.name], session)
    python = interpreter(place.staging)
    if not _is_staging_relocatable(place):
        # uv writes the interpreter's path into the scripts.
        python = place.find_interpreter()
        words += ["--prefix", str(place.staging)]
    command = uv.pip_command("install", python, *words)

    def install(*, is_index_needed: bool) -> Lock:
        indexes = [*session.sources.credentials.uv_indexes()]
        if index and is_http_url(index):
            indexes.append(create_torch_entry(index, is_explicit=not is_index_needed))
        default = session.environment.get("UV_DEFAULT_INDEX")
        if default:
            indexes.append({"url": default, "default": True})
        text = create_sync_settings(builds, site, indexes)
        write_atomically(settings, text, is_cached=True)
        return transfer.run(command, create_sync_variables(builds, site), session)

    try:
        return install(is_index_needed=False)
    except InstallationError as error:
        # Only a build that requires torch needs the index of torch.
        if not builds or not find_mentioned_names(error.sentence, ["torch"]):
            raise
    return install(is_index_needed=True)


def _format_torch_requirement(lock: Lock) -> str:
    """Return a requirement for the locked torch, by URL if it is local."""
    for file in lock.files:
        if file.package == "torch" and parse_file_url(file.url):
            return f"torch @ {file.url}"
    return f"torch=={lock.versions['torch']}"


def find_bundled_pip(base: Path) -> Path | None:
    """Return the pip wheel that an interpreter bundles, if any."""
    root = base.resolve().parent
    posix_wheels = root.parent.glob("lib/python3*/ensurepip/_bundled/pip-*.whl")
    windows_wheels = root.glob("Lib/ensurepip/_bundled/pip-*.whl")
    system_wheels = root.parent.glob("share/python-wheels/pip-*.whl")
    return min((*posix_wheels, *windows_wheels, *system_wheels), default=None)


def _find_base_python(version: str, session: Session) -> Path:
    """Find an interpreter for Python ``X.Y``, or download one with uv."""
    python = find_python(version)
    if python is None:
        session.reporter.wait(f"downloading Python {version}")
        run_uv([str(uv.uv()), "python", "install", "--no-bin", version], session)
        python = find_python(version)
    if python is None:
        message = f"uv downloaded Python {version}, but it cannot be found"
        raise InstallationError("no-python", message)
    return python
