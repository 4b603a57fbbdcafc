"""`python -m kctl` and the `kctl` script."""

# `signal` makes its enums first, milliseconds in which Ctrl-C prints a traceback. This does not.
import _signal as signal  # type: ignore[import-not-found]
import gc
import sys


def main() -> None:
    """Run the command line; exits with its status."""
    words = sys.argv[1:]
    # Until the command begins (kctl.imports): modules are imported, and leave no cycles.
    gc.disable()
    # While modules are imported, Ctrl-C ends the process; Python would print a traceback.
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        if words[:1] == ["__complete"]:
            # The shell waits at every press of Tab: no command framework is loaded for it.
            from kctl.cli.declaration.names import complete

            sys.exit(complete(words[1:]))
        from kctl.cli.app import run

        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        from kctl.cli.pipes import end_process

        end_process(run(words))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
