//! Variables that open a store. No program that this process starts gets them: it could print them,
//! and what a worker runs for an item needs no right on the store.

use std::ffi::OsStr;

/// What the name of a setting of gossip with a password may contain.
const SECRET_WORDS: [&str; 5] = ["STORE", "PASSWORD", "SECRET", "TOKEN", "KEY"];

/// Variables of libpq from which the password of a PostgreSQL store is read.
const OF_LIBPQ: [&str; 2] = ["PGPASSWORD", "PGPASSFILE"];

/// Returns whether a variable may contain a password of a store, or where one is.
pub(crate) fn is_store_secret(name: &OsStr) -> bool {
    let setting = name.to_str().and_then(|name| name.strip_prefix("GOSSIP_"));
    let has_word = |name: &str| SECRET_WORDS.iter().any(|word| name.contains(word));
    setting.is_some_and(has_word) || OF_LIBPQ.iter().any(|own| name == *own)
}
