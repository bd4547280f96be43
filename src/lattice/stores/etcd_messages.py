"""The part of etcd's v3 messages that Lattice uses, made at run time so that any protobuf release will do."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "lattice.etcd"
"""Not etcd's own: names do not travel, and an application may have loaded etcd's descriptions itself."""

# Message: field, number, type. A trailing * means repeated, a capital first letter names a message of this table.
# The alternatives of etcd's unions are plain fields here: on the wire they are the same.
_MESSAGES = {
    "Header": "cluster_id 1 uint64, member_id 2 uint64, revision 3 int64",
    "KeyValue": "key 1 bytes, create_revision 2 int64, mod_revision 3 int64, value 5 bytes, lease 6 int64",
    "Event": "type 1 int32, kv 2 KeyValue",
    "RangeRequest": "key 1 bytes, range_end 2 bytes, keys_only 8 bool",
    "RangeResponse": "header 1 Header, kvs 2 KeyValue*",
    "PutRequest": "key 1 bytes, value 2 bytes, lease 3 int64",
    "DeleteRangeRequest": "key 1 bytes, range_end 2 bytes",
    "RequestOp": "request_range 1 RangeRequest, request_put 2 PutRequest, request_delete_range 3 DeleteRangeRequest,"
    " request_txn 4 TxnRequest",
    "ResponseOp": "response_range 1 RangeResponse, response_txn 4 TxnResponse",
    "Compare": "result 1 int32, target 2 int32, key 3 bytes, create_revision 5 int64, mod_revision 6 int64",
    "TxnRequest": "compare 1 Compare*, success 2 RequestOp*, failure 3 RequestOp*",
    "TxnResponse": "header 1 Header, succeeded 2 bool, responses 3 ResponseOp*",
    "WatchCreateRequest": "key 1 bytes, range_end 2 bytes, start_revision 3 int64",
    "WatchRequest": "create_request 1 WatchCreateRequest",
    "WatchResponse": "header 1 Header, created 3 bool, canceled 4 bool, compact_revision 5 int64,"
    " cancel_reason 6 string, events 11 Event*",
    "LeaseGrantRequest": "ttl 1 int64, id 2 int64",
    "LeaseGrantResponse": "header 1 Header, id 2 int64, ttl 3 int64",
    "LeaseRevokeRequest": "id 1 int64",
    "LeaseRevokeResponse": "header 1 Header",
    "LeaseKeepAliveRequest": "id 1 int64",
    "LeaseKeepAliveResponse": "header 1 Header, id 2 int64, ttl 3 int64",
    "LeaseTimeToLiveRequest": "id 1 int64",
    "LeaseTimeToLiveResponse": "header 1 Header, id 2 int64, ttl 3 int64",
    "AuthenticateRequest": "name 1 string, password 2 string",
    "AuthenticateResponse": "header 1 Header, token 2 string",
}

METHODS = {
    "Range": "/etcdserverpb.KV/Range",
    "Txn": "/etcdserverpb.KV/Txn",
    "Watch": "/etcdserverpb.Watch/Watch",
    "LeaseGrant": "/etcdserverpb.Lease/LeaseGrant",
    "LeaseRevoke": "/etcdserverpb.Lease/LeaseRevoke",
    "LeaseKeepAlive": "/etcdserverpb.Lease/LeaseKeepAlive",
    "LeaseTimeToLive": "/etcdserverpb.Lease/LeaseTimeToLive",
    "Authenticate": "/etcdserverpb.Auth/Authenticate",
}
"""Where each call goes; its messages are <name>Request and <name>Response."""

EQUAL = 0
CREATE = 1
MOD = 2
DELETE = 1


def _describe() -> descriptor_pb2.FileDescriptorProto:
    field_type = descriptor_pb2.FieldDescriptorProto
    described = descriptor_pb2.FileDescriptorProto(name="lattice_etcd.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = described.message_type.add(name=name)
        for row in fields.split(","):
            field, number, kind = row.split()
            repeated = kind.endswith("*")
            kind = kind.removesuffix("*")
            added = message.field.add(name=field, number=int(number))
            added.label = field_type.LABEL_REPEATED if repeated else field_type.LABEL_OPTIONAL
            if kind in _MESSAGES:
                added.type = field_type.TYPE_MESSAGE
                added.type_name = f".{_PACKAGE}.{kind}"
            else:
                added.type = field_type.Type.Value(f"TYPE_{kind.upper()}")
    return described


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(_describe().SerializeToString())
    # The function is newer than the class, and the class is gone where the function is the only way.
    make = getattr(message_factory, "GetMessageClass", None)
    if make is None:
        make = message_factory.MessageFactory(pool).GetPrototype  # type: ignore[attr-defined]
    return {name: make(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES}


MESSAGES: dict[str, Any] = _classes()
"""Message classes by name."""
