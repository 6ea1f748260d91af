//! Process every key of something huge, on as many machines as you like; resume where it stopped;
//! prove that nothing was missed.
//!
//! ```
//! use gossip::prelude::*;
//!
//! # fn main() -> Result<(), ScanError> {
//! // In a program: a directory or `lines:urls.txt`, and `sqlite:state.db` or an etcd cluster.
//! let outcome = Scan::of("range:0..100").store("memory:").each(|item| {
//!     println!("{}", item.text()?);
//!     Ok(())
//! })?;
//! assert!(outcome.is_complete());
//! # Ok(())
//! # }
//! ```
//!
//! Run the program again to resume: items whose handler returned `Ok` are not processed again. Run
//! it on several machines with the same store, and they share the work.
//!
//! | piece | for |
//! |---|---|
//! | [`Scan`] | a source, a store, a handler: one call |
//! | [`Item`], [`ItemError`] | what a handler receives, and how it fails |
//! | [`Outcome`], [`ScanError`] | how a scan ended |
//! | [`Prepared`], [`Session`], [`Joined`] | the steps of that call, for programs that do something in between |
//! | [`secrets`] | a scan for leaked secrets |
//! | [`store`] | a store by URL, and coordinator handles on it |
//! | [`sources`] | sources by text; own connectors register there |
//!
//! # Guarantees
//!
//! - Each key is passed to the handler **at least once**. The cursor moves past a key only after
//!   its handler returned `Ok`, so make results durable before that.
//! - A crash, a lost lease or a split repeats keys, and never skips one. A repeated key comes with
//!   a higher or equal [`Item::fence`]: a sink that keeps the fence with each result and refuses a
//!   lower one is exact. `examples/sink_with_fence.rs` shows it.
//! - A key whose handler fails for good is parked alone; the others complete, and the outcome is
//!   [`Status::Incomplete`].
//!
//! # The layers below
//!
//! They are re-exported whole: [`coordination`] (leases, cursors, runs without a worker; see
//! `examples/coordinator_only.rs`), [`connector`] (the contract of sources), [`identity`],
//! [`model`] (cursors, shard specifications), [`frontier`] (keys as ordered bytes), [`handoff`],
//! [`etcd`] and [`postgres`] (settings of the stores on servers). Of the runtime, [`runtime`] has
//! the worker and what it reports, and [`certificate`] the proof of what a run covered.
#![forbid(unsafe_code)]

pub mod runtime;
mod scan;
pub mod secrets;
pub mod sources;
pub mod store;
mod tenant;

pub use gossip_contracts::coordination as model;
pub use gossip_contracts::{connector, identity};
pub use gossip_coordination as coordination;
pub use gossip_coordination_etcd as etcd;
pub use gossip_coordination_postgres as postgres;
pub use gossip_frontier as frontier;
pub use gossip_handoff as handoff;
pub use gossip_scanner_runtime::certificate;

pub use self::scan::{
    FAILED_LISTED_MAX, FailedRange, Item, ItemError, Joined, Outcome, Prepared, RunCommand, Scan,
    ScanError, Session, Status, Totals, WorkOptions,
};
pub use self::tenant::{DEFAULT_TENANT, TENANT_NAME_MAX, TenantNameError, tenant_id};

/// What most programs import.
pub mod prelude {
    pub use crate::connector::{Connector, ConnectorError, OpenError};
    pub use crate::scan::{Item, ItemError, Outcome, Scan, ScanError, Status};
    pub use gossip_scanner_runtime::{Drain, Event};
}
