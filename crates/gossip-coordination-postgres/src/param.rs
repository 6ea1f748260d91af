//! Parameters of statements that show nothing.
//!
//! tokio-postgres logs the parameters of every statement at the level `debug`. Ours are keys and
//! values of tenants.

use std::error::Error;
use std::fmt;

use bytes::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

/// A parameter whose `Debug` shows nothing of it.
#[derive(Default)]
pub(crate) struct Param<T>(pub(crate) T);

impl<T> fmt::Debug for Param<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("_")
    }
}

impl<T: ToSql> ToSql for Param<T> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        self.0.to_sql(ty, out)
    }

    fn accepts(ty: &Type) -> bool {
        T::accepts(ty)
    }

    to_sql_checked!();
}
