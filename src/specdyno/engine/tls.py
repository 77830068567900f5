"""TLS towards an engine: whom to trust, and what a refused certificate means. There is no way to trust anybody."""

from __future__ import annotations

import ssl
from pathlib import Path

import aiohttp

from specdyno.errors import BlockedEngineError, PlanError, Problem

Refused = (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError)

_EXPIRED, _NOT_YET, _SELF_SIGNED, _SELF_SIGNED_IN_CHAIN = 10, 9, 18, 19
_UNKNOWN_ISSUER = (2, 20, 21)
_OTHER_HOST, _OTHER_ADDRESS = 62, 64
_TRUST_IT = "Name the certificate authority's PEM file: engine.ca_file in a plan, --ca-file on the command line"
_RENEW = "Give the server a certificate that is valid now, and check this host's clock"
_NAME_IT = "Use the host name that the certificate is made for"


def context(ca_file: str | None) -> ssl.SSLContext:
    """The system's authorities and those of `ca_file`. PlanError where that file holds none."""
    made = ssl.create_default_context()
    if ca_file is None:
        return made
    try:
        made.load_verify_locations(cafile=ca_file)
    except ssl.SSLError as error:
        raise _unusable(ca_file, "holds no certificate in PEM form") from error
    except OSError as error:
        raise _unusable(ca_file, f"cannot be read ({error.strerror or error})") from error
    return made


def explained(error: aiohttp.ClientError, base_url: str) -> BlockedEngineError:
    """What a refused TLS connection means. No retry helps: the certificate, the trust or the address must change."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        seen, remedy = _certificate(error.certificate_error)
    else:
        seen, remedy = f"no TLS connection ({_reason(error)})", "Check the address: a server without TLS wants http://"
    return BlockedEngineError(f"{base_url}: {seen}", remedy=remedy)


def _certificate(error: Exception) -> tuple[str, str]:
    code = getattr(error, "verify_code", None)
    message = getattr(error, "verify_message", "") or str(error)
    if code in (_EXPIRED, _NOT_YET):
        word = "has expired" if code == _EXPIRED else "is not valid yet"
        return f"the server's certificate {word}", _RENEW
    if code in (_OTHER_HOST, _OTHER_ADDRESS):
        return f"the server's certificate is made for another name ({message})", _NAME_IT
    if code == _SELF_SIGNED:
        return "the server's certificate is signed by itself and not trusted", _TRUST_IT
    if code in (_SELF_SIGNED_IN_CHAIN, *_UNKNOWN_ISSUER):
        return "the server's certificate comes from an authority that is not trusted here", _TRUST_IT
    return f"the server's certificate is refused ({message})", _TRUST_IT


def _reason(error: aiohttp.ClientError) -> str:
    inner = getattr(error, "os_error", None)
    return getattr(inner, "reason", None) or type(error).__name__


def _unusable(ca_file: str, seen: str) -> PlanError:
    remedy = f"Name the PEM file of the certificate authority; {Path(ca_file).name} is looked for beside the plan"
    return PlanError([Problem("engine.ca_file", f"{ca_file} {seen}", remedy)])
