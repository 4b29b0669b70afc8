"""What the messages to another fwbench's server hold, of which the protocol's version tells."""

import dataclasses
import hashlib
import json

from fwbench.models import CATALOG
from fwbench.record.lanes import LANES
from fwbench.record.measurement import Failure
from fwbench.record.workload import Workload
from fwbench.worker.client.starting import configuration
from fwbench.worker.protocol import VERSION


def test_a_change_of_what_travels_has_another_version():
    """A base of the same version would be sent fields that it does not know: raise VERSION and renew this digest.

    Where a field that has a default is gone, the digest alone is new: an older base takes the default.
    """
    travels = {
        "configuration": configuration(LANES["noop"], [], ""),
        "lane": LANES["noop"].to_json(),
        "model": CATALOG["noop"].to_json(),
        **{kind.__name__: {field.name: None for field in dataclasses.fields(kind)} for kind in (Workload, Failure)},
    }
    names = json.dumps({name: sorted(fields) for name, fields in travels.items()}, sort_keys=True)
    assert (VERSION, hashlib.sha256(names.encode()).hexdigest()[:12]) == (3, "7ac98569c706")
