//! How much fits in one request, computed from what the server allows.
//!
//! etcd counts the operations of a transaction by its longest list, and the bytes of a request by
//! its encoded form. The store layer counts the keys and values that a transaction writes. This
//! file is the bridge: whatever [`StoreLimits`] admits, the server takes. Every
//! request is measured exactly as well.
//!
//! | bytes of a request | for each |
//! |---|---|
//! | key and value written | counted by the store layer |
//! | namespace and framing of the write | write |
//! | key, namespace and framing, twice | compare: once to compare, once to read back |
//! | entry of the log around the request | request |

use gossip_coordination::SIDE_RECORD_BYTES_MAX;
use gossip_coordination::store::{KEY_LEN_MAX, StoreLimits};
use thiserror::Error;

use crate::config::EtcdConfig;

/// What the server wraps around a request before it measures it: ids, the user, its revision.
const ENTRY_LEN_MAX: usize = 1024;

/// Tags and lengths around one compare, read or write, and the numbers in it.
const FRAME_LEN_MAX: usize = 48;

/// Compares of ranges in one transaction, whose second key needs room. The store layer makes two:
/// a run is complete if nothing is active and nothing is parked.
const RANGES_MAX: usize = 8;

/// The least that must be left for keys and values: the side records of one operation, the hot part
/// of a shard with everything as long as it may be, and an event. With less there would be
/// checkpoints that never fit. A new shard needs less.
const TXN_BYTES_MIN: usize = SIDE_RECORD_BYTES_MAX + (64 << 10);

/// Keys of one page. A page of usual records is well below four mebibytes; the cost of a page grows
/// with the *range*, so many small pages of a long range cost more than few large ones.
const PAGE_MAX: usize = 1_000;

/// What one request may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// Operations in the longest list of a transaction, those of nested ones included.
    pub(crate) ops: usize,
    /// Bytes of an encoded request.
    pub(crate) bytes: usize,
    /// The same in the words of the store layer.
    pub(crate) limits: StoreLimits,
}

impl Budget {
    /// Returns the budget of a server with the limits in `config`.
    pub(crate) fn new(config: &EtcdConfig) -> Result<Self, RequestTooSmall> {
        let (ops, request) = (config.max_txn_ops, config.max_request_bytes);
        // The server applies its limit to the entry of its log, which is larger than the request.
        let bytes = request.saturating_sub(ENTRY_LEN_MAX);
        let overhead = Self::overhead(ops, config.namespace.prefix().len());
        let limits =
            StoreLimits { txn_ops: ops, txn_bytes: bytes.saturating_sub(overhead), page: PAGE_MAX };
        if limits.txn_bytes < TXN_BYTES_MIN {
            let needed = ENTRY_LEN_MAX + overhead + TXN_BYTES_MIN;
            return Err(RequestTooSmall { bytes: request, ops, needed });
        }
        Ok(Self { ops, bytes, limits })
    }

    /// Returns the bytes of a request that the store layer does not count.
    const fn overhead(ops: usize, prefix_len: usize) -> usize {
        let write = FRAME_LEN_MAX + prefix_len;
        let compare = 2 * (FRAME_LEN_MAX + prefix_len + KEY_LEN_MAX);
        ops * write + (ops + RANGES_MAX) * compare
    }
}

/// The server takes too few bytes for as many operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "a request of {bytes} bytes leaves no room for a checkpoint beside {ops} operations; start the \
     servers with --max-request-bytes={needed} or more, or a lower --max-txn-ops, and give both \
     as max_request_bytes and max_txn_ops"
)]
pub struct RequestTooSmall {
    /// Bytes of a request.
    pub(crate) bytes: usize,
    /// Operations of a transaction.
    pub(crate) ops: usize,
    /// Bytes that so many operations need.
    pub(crate) needed: usize,
}
