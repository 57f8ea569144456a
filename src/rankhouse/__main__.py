"""``python -m rankhouse``: the command line, where its script is not on the path."""

from rankhouse.cli.main import main

if __name__ == "__main__":
    main()
