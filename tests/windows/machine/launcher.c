/* The launcher of virtual environments, which python.org's embeddable package lacks.
 *
 * It runs PROGRAM of the folder that is "home" in pyvenv.cfg, in a job that ends with the launcher.
 */
#include <stdio.h>
#include <wchar.h>
#include <windows.h>

#ifndef PROGRAM
#define PROGRAM L"python.exe"
#endif
#define MOST 32768

static wchar_t own_path[MOST], settings[MOST], program[MOST], command[2 * MOST];

static BOOL WINAPI ignore_event(DWORD event) {
    (void)event; /* the interpreter receives it, too */
    return TRUE;
}

static int read_home(void) {
    char line[8192];
    FILE *file = _wfopen(settings, L"r");
    if (!file) return 0;
    while (fgets(line, sizeof line, file)) {
        char *value = strchr(line, '=');
        if (strncmp(line, "home", 4) != 0 || !value) continue;
        value += 1 + strspn(value + 1, " ");
        value[strcspn(value, "\r\n")] = 0;
        MultiByteToWideChar(CP_UTF8, 0, value, -1, program, MOST);
    }
    fclose(file);
    return program[0] != 0;
}

static const wchar_t *find_arguments(const wchar_t *line) {
    if (*line != L'"') return line + wcscspn(line, L" \t");
    line += 1 + wcscspn(line + 1, L"\"");
    return *line ? line + 1 : line;
}

static HANDLE create_job(void) {
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits = {0};
    HANDLE job = CreateJobObjectW(NULL, NULL);
    limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | JOB_OBJECT_LIMIT_SILENT_BREAKAWAY_OK;
    SetInformationJobObject(job, JobObjectExtendedLimitInformation, &limits, sizeof limits);
    return job;
}

int main(void) {
    STARTUPINFOW start = {0};
    PROCESS_INFORMATION process;
    DWORD status = 1;
    HANDLE job;
    GetModuleFileNameW(NULL, own_path, MOST);
    wcscpy(settings, own_path);
    *wcsrchr(settings, L'\\') = 0;
    wcscpy(wcsrchr(settings, L'\\') + 1, L"pyvenv.cfg");
    if (!read_home()) {
        fwprintf(stderr, L"no home in %ls\n", settings);
        return 106;
    }
    wcscat(program, L"\\" PROGRAM);
    SetEnvironmentVariableW(L"__PYVENV_LAUNCHER__", own_path);
    swprintf(command, 2 * MOST, L"\"%ls\"%ls", program, find_arguments(GetCommandLineW()));
    GetStartupInfoW(&start);
    if (!(start.dwFlags & STARTF_USESTDHANDLES)) {
        start.dwFlags |= STARTF_USESTDHANDLES;
        start.hStdInput = GetStdHandle(STD_INPUT_HANDLE);
        start.hStdOutput = GetStdHandle(STD_OUTPUT_HANDLE);
        start.hStdError = GetStdHandle(STD_ERROR_HANDLE);
    }
    SetHandleInformation(start.hStdInput, HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT);
    SetHandleInformation(start.hStdOutput, HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT);
    SetHandleInformation(start.hStdError, HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT);
    SetConsoleCtrlHandler(ignore_event, TRUE);
    job = create_job();
    if (!CreateProcessW(program, command, NULL, NULL, TRUE, CREATE_SUSPENDED, NULL, NULL, &start, &process)) {
        fwprintf(stderr, L"cannot start %ls\n", program);
        return 101;
    }
    AssignProcessToJobObject(job, process.hProcess);
    ResumeThread(process.hThread);
    WaitForSingleObject(process.hProcess, INFINITE);
    GetExitCodeProcess(process.hProcess, &status);
    return (int)status;
}
