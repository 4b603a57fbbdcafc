"""The ZooKeeper-era controller. Decisions are pure; controller.py carries them out."""
