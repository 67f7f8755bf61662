"""The exit code for each way a run can end. 2, which is not here, is bad usage."""

EXIT_CODES = {
    "finished": 0,
    "failed": 1,
    "setup": 3,
    "limit": 4,
    "unanswered": 5,
    "stopped": 6,
    "budget": 7,
    "stuck": 8,
    "interrupted": 130,
}
