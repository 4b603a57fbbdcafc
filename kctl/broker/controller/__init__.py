"""The ZooKeeper-era controller. Decisions are pure; controller.py executes them."""
