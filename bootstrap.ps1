# Finds a Python and runs bootstrap.py with the arguments that it is given:
#
#   .\bootstrap.ps1 torch torchvision
#
# In a clone bootstrap.py lies beside this file. "make bootstrap" writes dist\bootstrap.ps1, which carries it inside, so
# that a team can serve one line:
#
#   irm https://files.example/bootstrap.ps1 | iex
#
# For Windows PowerShell 5.1 and newer. Where scripts are forbidden:
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
            # The "python" that Windows brings only points to the Microsoft Store; it ends with 9009.
            & $words[0] @options -c $isNewEnough *> $null
            if ($LASTEXITCODE -eq 0) {
                $python = $words[0]
                break
            }
        }
    }
    $global:LASTEXITCODE = 2
    if (-not $python) {
        [Console]::Error.WriteLine('error: there is no Python 3.8 or newer here (tried: py -3, python, python3)')
        [Console]::Error.WriteLine('  do    winget install --exact --id Python.Python.3.12')
        [Console]::Error.WriteLine('        then the same again, in a new window')
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
        [Console]::Error.WriteLine('error: there is no bootstrap.py beside this script, and none inside it')
        [Console]::Error.WriteLine('  do    in a clone of gpuinstall: .\bootstrap.ps1')
        [Console]::Error.WriteLine('        one file to serve: make bootstrap writes dist\bootstrap.ps1')
    }
} @args

# A script ends with the status of bootstrap.py; a typed line leaves it in $LASTEXITCODE, and the window open.
if ($PSCommandPath) {
    exit $LASTEXITCODE
}
