"""Self-contained pages: a template, the data in it, and a policy for what may run."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any


def fill(template: str, data: Any, parts: Mapping[str, str] | None = None) -> str:
    r"""Fill a template, and let only its own script and style run.

    The template is HTML with ``@POLICY@`` in a content security policy, ``@DATA@`` in a script of
    type application/json, one ``<script>`` and one ``<style>``.  `parts` replace their ``@NAME@``
    first.

    >>> fill("<style></style><script>@CODE@</script>@DATA@", "<b>", {"CODE": "run();"})
    '<style></style><script>run();</script>"\\u003cb>"'
    """
    given = parts or {}
    page = re.sub("@([A-Z]+)@", lambda found: given.get(found[1], found[0]), template)
    last = {
        "POLICY": _policy(page),
        # In ASCII, and so that it can't contain </script> or <!--.
        "DATA": json.dumps(data).replace("<", "\\u003c"),
    }
    return re.sub("@(POLICY|DATA)@", lambda found: last[found[1]], page)


def _policy(page: str) -> str:
    """Write a content security policy that names the page's script and style by their hashes."""
    allowed = ["default-src 'none'"]
    for tag in ("script", "style"):
        content = page.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        allowed.append(f"{tag}-src 'sha256-{digest}'")
    return "; ".join([*allowed, "base-uri 'none'", "form-action 'none'"])
