//! Short ways to write requests, for the unit tests of this crate.

use crate::proto::{PutRequest, RangeRequest, Request, RequestOp, TxnRequest};

pub(crate) fn put(key: &str, value: &str) -> RequestOp {
    let (key, value) = (key.as_bytes().to_vec(), value.as_bytes().to_vec());
    Request::Put(PutRequest { key, value, ..PutRequest::default() }).into()
}

pub(crate) fn get(key: &str) -> RangeRequest {
    RangeRequest { key: key.as_bytes().to_vec(), ..RangeRequest::default() }
}

pub(crate) fn steps(success: Vec<RequestOp>) -> TxnRequest {
    TxnRequest { success, ..TxnRequest::default() }
}
