//! The operations on shards that every backend provides, blocking and asynchronous.
//!
//! Both traits are derived from [`for_each_shard_operation!`], so they have the same methods with
//! the same documentation. A durable backend implements both by running one set of flights through
//! two drivers.
//!
//! # Guarantees of every backend
//!
//! - **Tenant isolation**: a request of one tenant reads and writes only that tenant's records.
//! - **Fence monotonicity**: a shard's fence never falls and rises with every change of owner.
//! - **Idempotency**: the same operation id with the same parameters returns the first result, with
//!   other parameters it is a conflict.
//! - **Cursor monotonicity and bounds**: a cursor never falls and never leaves the shard's range.
//! - **Split coverage**: the parts of a split cover exactly the range that was split.
//! - **Terminal irreversibility**: a shard that is done, split or parked stays so.
//!
//! The rules are in [`protocol`](crate::protocol); a backend keeps the guarantees by running them.

use std::future::Future;

use crate::for_each_shard_operation;
use crate::operations::*;

/// The operations on shards, blocking.
///
/// Every method returns the error type of its operation. `now` is the caller's clock and must not
/// be zero (a zero clock is a bug, and panics).
pub trait CoordinationBackend {
    for_each_shard_operation! { declare_blocking () }
}

/// The operations on shards, asynchronous. See [`CoordinationBackend`].
pub trait AsyncCoordinationBackend: Send {
    for_each_shard_operation! { declare_async () }
}
