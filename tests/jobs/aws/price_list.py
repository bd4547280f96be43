"""The price list service, which moto lacks: it answers as AWS does, for the types that a test names."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class PriceList:
    """Where it is, and what it was asked."""

    url: str
    asked: list[dict[str, str]] = field(default_factory=list)


def product(price: float) -> str:
    """Write a product as the price list has it."""
    dimension = {"unit": "Hrs", "description": "on demand", "pricePerUnit": {"USD": f"{price:.10f}"}}
    term = {"offerTermCode": "JRTCKXETXF", "priceDimensions": {"SKU.JRTCKXETXF.6YS6EN2CT7": dimension}}
    attributes = {"operatingSystem": "Linux", "tenancy": "Shared"}
    made = {"product": {"attributes": attributes}, "terms": {"OnDemand": {"SKU.JRTCKXETXF": term}}}
    return json.dumps({**made, "serviceCode": "AmazonEC2"})


@contextmanager
def price_list(prices: Mapping[str, float]) -> Iterator[PriceList]:
    """Serve these dollars an hour by type."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked = {one["Field"]: one["Value"] for one in body["Filters"]}
            made.asked.append(asked)
            kind = asked["instanceType"]
            found = [product(prices[kind])] if kind in prices else []
            answer = json.dumps({"FormatVersion": "aws_v1", "PriceList": found}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made = PriceList(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
