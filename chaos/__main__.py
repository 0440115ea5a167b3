"""`python -m chaos`: as `onceway chaos`."""

from chaos.live.cli import main

if __name__ == "__main__":
    main()
