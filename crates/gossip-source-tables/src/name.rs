//! The text behind the scheme: a place, and settings behind `?`.

use gossip_scanner_runtime::connectors::SourceRefusal;
use gossip_stdx::percent_decode;

/// A name that was split.
pub(crate) struct TableName<'a> {
    /// Everything before the `?`.
    pub(crate) place: &'a str,
    pub(crate) table: String,
    /// The value of `schema`.
    pub(crate) schema: Option<String>,
    /// The other settings, in their order.
    pub(crate) rest: Vec<&'a str>,
}

impl<'a> TableName<'a> {
    /// Splits `PLACE?table=NAME&…`.
    pub(crate) fn parse(name: &'a str) -> Result<Self, SourceRefusal> {
        let no_table = || refused("the table is missing: add ?table=NAME");
        // The last one, because a file name may have others.
        let (place, query) = name.rsplit_once('?').ok_or_else(no_table)?;
        let (mut table, mut schema, mut rest) = (None, None, Vec::new());
        for setting in query.split('&').filter(|setting| !setting.is_empty()) {
            let target = match setting.split_once('=') {
                Some(("table", value)) => (&mut table, value),
                Some(("schema", value)) => (&mut schema, value),
                Some(_) | None => {
                    rest.push(setting);
                    continue;
                }
            };
            let value = percent_decode(target.1);
            // The engines read a name up to a zero byte.
            let value = value.filter(|value| !value.is_empty() && !value.contains('\0'));
            let value = value.ok_or_else(|| refused("a name in the source is malformed"))?;
            if target.0.replace(value).is_some() {
                return Err(refused("a setting of the source is given twice"));
            }
        }
        Ok(Self { place, table: table.ok_or_else(no_table)?, schema, rest })
    }
}

pub(crate) fn refused(text: &str) -> SourceRefusal {
    SourceRefusal::new(text)
}

/// Returns an identifier in quotes, for SQLite and PostgreSQL.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_split_at_its_last_question_mark() {
        let name = TableName::parse("a?b.db?table=my%20rows").unwrap();
        assert_eq!((name.place, &*name.table), ("a?b.db", "my rows"));
        let name = TableName::parse("//u@h/db?tls=off&schema=s&table=t").unwrap();
        assert_eq!((name.schema.as_deref(), &*name.rest), (Some("s"), &["tls=off"][..]));
    }

    #[test]
    fn a_malformed_name_is_refused() {
        for name in
            ["a.db", "a.db?", "a.db?table=", "a?table=%4", "a?table=%00", "a?table=x&table=y"]
        {
            assert!(TableName::parse(name).is_err(), "{name}");
        }
    }

    #[test]
    fn quotes_in_a_name_are_doubled() {
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
    }
}
