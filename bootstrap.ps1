# Finds Python and runs bootstrap.py with the given arguments:
#
#   .\bootstrap.ps1 torch torchvision
#
# In a clone, bootstrap.py is next to this file. "make bootstrap" writes dist\bootstrap.ps1, which contains it, so that a
# team can publish one line:
#
#   irm https://files.example/bootstrap.ps1 | iex
#
# For Windows PowerShell 5.1 and newer. If scripts are disabled:
#
#   powershell -ExecutionPolicy Bypass -File bootstrap.ps1

& {
    $ErrorActionPreference = 'Continue'
    $carried = ''
    $isNewEnough = 'import sys; sys.exit(sys.version_info < (3, 8))'
    $python = $null
    foreach ($line in 'py -3', 'python', 'python3') {
        $words = @($line -split ' ')
        $options = @($words | Select-Object -Skip 1)
        if (Get-Command $words[0] -CommandType Application -ErrorAction Ignore) {
            # Windows' own "python" opens the Microsoft Store and exits with 9009.
            & $words[0] @options -c $isNewEnough *> $null
            if ($LASTEXITCODE -eq 0) {
                $python = $words[0]
                break
            }
        }
    }
    $global:LASTEXITCODE = 2
    if (-not $python) {
        [Console]::Error.WriteLine('error: Python 3.8 or newer was not found (tried: py -3, python, python3)')
        [Console]::Error.WriteLine('  do    winget install --exact --id Python.Python.3.12')
        [Console]::Error.WriteLine('        then run this again in a new window')
        return
    }
    if ($carried) {
        $folder = Join-Path ([IO.Path]::GetTempPath()) "gpuinstall-$([Guid]::NewGuid())"
        try {
            $null = New-Item -ItemType Directory -Path $folder
            [IO.File]::WriteAllText("$folder\bootstrap.py", $carried)
            & $python @options "$folder\bootstrap.py" @args
        } finally {
            Remove-Item -LiteralPath $folder -Recurse -Force -ErrorAction Ignore
        }
    } elseif ($PSScriptRoot -and (Test-Path -LiteralPath "$PSScriptRoot\bootstrap.py")) {
        & $python @options "$PSScriptRoot\bootstrap.py" @args
    } else {
        [Console]::Error.WriteLine('error: bootstrap.py is neither next to this script nor inside it')
        [Console]::Error.WriteLine('  do    in a clone of gpuinstall: .\bootstrap.ps1')
        [Console]::Error.WriteLine('        or publish one file: make bootstrap writes dist\bootstrap.ps1')
    }
} @args

# A script exits with the status of bootstrap.py. "irm | iex" must not close the window, and only sets $LASTEXITCODE.
if ($PSCommandPath) {
    exit $LASTEXITCODE
}
