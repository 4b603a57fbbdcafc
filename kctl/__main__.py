"""`python -m kctl` and the `kctl` script."""

import sys


def main() -> None:
    """Run the command line; exits with its status."""
    words = sys.argv[1:]
    try:
        if words[:1] == ["__complete"]:
            # The shell waits at every press of Tab: no command framework is loaded for it.
            from kctl.cli.names import complete

            sys.exit(complete(words[1:]))
        from kctl.cli.app import run

        sys.exit(run(words))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
