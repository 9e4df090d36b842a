# The Makefile's targets for Windows: .\make.ps1 test
param([ValidateSet('test', 'test-only', 'lint', 'types')][string]$Target = 'test')
$ErrorActionPreference = 'Stop'
Set-Location $PSScriptRoot
# A certificate may be only in the system's store, and pip may be configured to install for the user.
$env:UV_SYSTEM_CERTS = 'true'
$env:PIP_USER = '0'

function Invoke-Step([string]$Program, [string[]]$Words) {
    & $Program @Words
    if ($LASTEXITCODE -ne 0) { exit $LASTEXITCODE }
}

$Dev = '.venv-dev\Scripts\python.exe'
if (-not (Test-Path '.venv-dev\ready')) {
    Invoke-Step 'python' @('-m', 'venv', '.venv-dev')
    Invoke-Step $Dev @('-m', 'pip', 'install', '-q', '--require-hashes', '-r', 'lockfiles/development.txt')
    Invoke-Step '.venv-dev\Scripts\uv.exe' @('pip', 'install', '-q', '--python', $Dev, '--no-deps', '-e', '.')
    Invoke-Step $Dev @('-m', 'tests.lab.environments')
    New-Item '.venv-dev\ready' -ItemType File | Out-Null
}
if ($Target -in 'test', 'lint') {
    Invoke-Step $Dev @('-m', 'ruff', 'check', '.')
    Invoke-Step $Dev @('-m', 'ruff', 'format', '--check', '.')
    Invoke-Step $Dev @('-m', 'tools.language')
}
if ($Target -in 'test', 'types') {
    Invoke-Step $Dev @('-m', 'mypy')
}
if ($Target -in 'test', 'test-only') {
    Invoke-Step $Dev @('-m', 'pytest', '-q', '-n', 'auto', '--dist', 'worksteal', '-m', 'not heavy and not network')
}
