//! Objects of a bucket as a source: `s3://bucket/prefix`, and `?endpoint=URL` for other servers.
//!
//! The key of an item is the key of its object as raw bytes, its body the object. The token has the
//! ETag, so that opening an item needs one request and reads the version that was listed.
//!
//! ```text
//!  range + cursor ──► start-after ──► GET ?list-type=2 ──► parse ──► check ──► page
//!                                        │ retries, signatures            unordered, repeated or
//!  open(key, ETag) ──► GET, If-Match ────┘                                stuck: shard parked
//! ```
//!
//! # Rules
//!
//! - The last key is the only cursor. Continuation tokens are neither sent nor stored: they end
//!   with the listing they belong to, and on some servers earlier.
//! - Keys are bytes. They are percent-encoded into requests by `encode.rs`, and never pass through
//!   a type that normalizes paths: `x/../y` is an object, and not `y`.
//! - Nothing that a server leaves out is taken for absent: a page that is not in byte order, begins
//!   at or before its cursor, or says that it is truncated without a further key, is an error.
//!
//! # Never
//!
//! - writes to a bucket;
//! - reads the environment: the caller passes [`BucketEnvironment`];
//! - stores a credential, or shows one, or a key, in an error.

#![forbid(unsafe_code)]

mod clock;
mod connector;
mod credentials;
mod encode;
mod environment;
mod family;
mod list;
mod object;
mod place;
mod request;
mod sign;
mod transport;
mod xml;

pub use self::environment::BucketEnvironment;
pub use self::family::Buckets;
