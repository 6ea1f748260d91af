//! Rows of a table as a source: `sqlite:FILE?table=t` and `postgres://…/db?table=t`.
//!
//! The key of an item is the primary key of its row, encoded by
//! [`encode_columns`](gossip_frontier::encode_columns) so that byte order is the order of the
//! index. Its body is the row as JSON, a name and a value for each column.
//!
//! ```text
//!  range + cursor ──► Span: two conditions on leading columns ──► one statement per page
//!                                                                        │
//!  open(key) ◄── the row as the page had it, while the page is kept ◄── Batch
//!        └─────► one statement by key, once the page is gone
//! ```
//!
//! # Guarantees
//!
//! - Each page is one statement and its own snapshot; no transaction outlives it.
//! - A row that is in the table throughout the run and keeps its key is listed exactly once. One
//!   that is inserted or deleted meanwhile, or gets another key, may be listed or not; one that
//!   moved may be listed under both keys.
//! - Keys are compared here and in the database by the same rules: integers by value, uuids, texts
//!   and bytes by bytes. A table whose index has another order is refused before the run.
//!
//! # Never
//!
//! - writes to the database, or holds a lock or a snapshot between pages;
//! - reads the environment: the caller passes
//!   [`PostgresEnvironment`](gossip_coordination_postgres::PostgresEnvironment);
//! - shows a value of a row in an error.

#![forbid(unsafe_code)]

mod batch;
mod connector;
mod name;
mod postgres;
mod span;
mod sqlite;

pub use self::postgres::PostgresTables;
pub use self::sqlite::SqliteTables;
