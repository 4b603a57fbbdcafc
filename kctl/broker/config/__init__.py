"""Configs at run time: alterations, DescribeConfigs, and what the store holds."""
