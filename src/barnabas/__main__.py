"""`python -m barnabas`: the same as the `barnabas` command."""

from barnabas.cli.app import main

if __name__ == "__main__":
    main()
