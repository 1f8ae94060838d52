"""``python -m simrl``."""

from simrl.cli.main import main

if __name__ == "__main__":
    main()
