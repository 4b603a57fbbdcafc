"""TLS as values: settings, key and trust stores, certificates and the principals they name. Pure.

The layer that speaks TLS is `kctl.runtime.real`: it builds OpenSSL's contexts from what is here.
"""
