//! The primary key of a table, the index that its rows are listed by, and what makes it unusable.

use gossip_frontier::ColumnKind;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::session::Failure;
use crate::name::quoted;

/// The columns by which a table is listed.
pub(super) struct Key {
    /// The table with its schema, for statements.
    pub(super) table: String,
    columns: Vec<KeyColumn>,
    pub(super) kinds: Vec<ColumnKind>,
}

struct KeyColumn {
    name: String,
    /// The collation of the index, for texts.
    collation: Option<String>,
    /// Its version, if it has one.
    version: Option<String>,
}

impl Key {
    /// Returns the columns as the index compares them.
    pub(super) fn compared(&self) -> Vec<String> {
        let compared = self.columns.iter().map(|column| {
            let name = format!("\"~\".{}", quoted(&column.name));
            match &column.collation {
                Some(collation) => format!("{name} COLLATE {}", quoted(collation)),
                None => name,
            }
        });
        compared.collect()
    }

    /// Returns the columns as they are read.
    pub(super) fn selected(&self) -> Vec<String> {
        let pairs = self.columns.iter().zip(&self.kinds).enumerate();
        let selected = pairs.map(|(index, (column, kind))| {
            let cast = match kind {
                ColumnKind::Integer => "::int8",
                ColumnKind::Text => "::text",
                ColumnKind::Uuid | ColumnKind::Bytes => "",
            };
            format!("\"~\".{}{cast} AS k{index}", quoted(&column.name))
        });
        selected.collect()
    }

    /// Returns what must not change during a run, as text.
    pub(super) fn description(&self) -> String {
        let columns = self.columns.iter().zip(&self.kinds);
        let columns = columns
            .map(|(column, kind)| (&column.name, kind, &column.collation, &column.version))
            .collect::<Vec<_>>();
        format!("postgres {} {columns:?}", self.table)
    }

    /// Reads the key of a table from the catalogue.
    pub(super) async fn of(client: &Client, schema: &str, table: &str) -> Result<Self, Failure> {
        let oid = find(client, schema, table).await?;
        let columns = primary_key(client, oid).await?;
        if columns.is_empty() {
            return refused(
                "the table has no primary key, so its rows have no keys; add one with \
                 ALTER TABLE … ADD PRIMARY KEY",
            );
        }
        let kinds: Vec<ColumnKind> =
            columns.iter().map(|(name, ty)| kind_of(name, ty)).collect::<Result<_, _>>()?;
        let names: Vec<String> = columns.into_iter().map(|(name, _)| name).collect();
        let table = format!("{}.{}", quoted(schema), quoted(table));
        let indexes = indexes(client, oid).await?;
        let found = indexes.into_iter().find(|index| index.serves(&names, &kinds));
        let Some(index) = found else { return Err(no_index(&table, &names, &kinds)) };
        let columns =
            names.into_iter().zip(&kinds).zip(index.collations).map(|((name, kind), collation)| {
                match kind {
                    ColumnKind::Text => KeyColumn {
                        name,
                        collation: Some(collation.name),
                        version: collation.version,
                    },
                    ColumnKind::Integer | ColumnKind::Uuid | ColumnKind::Bytes => {
                        KeyColumn { name, collation: None, version: None }
                    }
                }
            });
        Ok(Self { table, columns: columns.collect(), kinds })
    }
}

fn refused<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Refused(text.into()))
}

/// Returns the id of a table that can be listed.
async fn find(client: &Client, schema: &str, table: &str) -> Result<u32, Failure> {
    let sql = "SELECT c.oid, c.relkind::text, \
               EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid), \
               current_setting('server_encoding') \
               FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
               WHERE n.nspname = $1 AND c.relname = $2";
    let rows = client.query_typed(sql, &[(&schema, Type::TEXT), (&table, Type::TEXT)]).await?;
    let Some(row) = rows.first() else {
        return refused("the schema has no such table; another schema is named by &schema=NAME");
    };
    let (kind, has_children): (String, bool) = (row.try_get(1)?, row.try_get(2)?);
    if kind == "p" || has_children {
        return refused("the table has partitions; name each of them as a source of its own");
    }
    if kind != "r" {
        return refused("only ordinary tables have a primary key; name the table behind it");
    }
    let encoding: String = row.try_get(3)?;
    if encoding != "UTF8" {
        return refused(format!("the database stores texts in {encoding}; only UTF8 is listed"));
    }
    Ok(row.try_get(0)?)
}

/// Returns the names and types of the columns of the primary key, in its order.
async fn primary_key(client: &Client, oid: u32) -> Result<Vec<(String, String)>, Failure> {
    let sql = "SELECT a.attname::text, format_type(a.atttypid, NULL) \
               FROM pg_index i, unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place) \
               JOIN pg_attribute a ON a.attnum = k.attnum \
               WHERE a.attrelid = i.indrelid AND i.indrelid = $1 AND i.indisprimary \
               AND k.place <= i.indnkeyatts ORDER BY k.place";
    let rows = client.query_typed(sql, &[(&oid, Type::OID)]).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

/// Returns the kind of a type.
fn kind_of(column: &str, ty: &str) -> Result<ColumnKind, Failure> {
    match ty {
        "smallint" | "integer" | "bigint" => Ok(ColumnKind::Integer),
        "uuid" => Ok(ColumnKind::Uuid),
        "text" | "character varying" => Ok(ColumnKind::Text),
        "bytea" => Ok(ColumnKind::Bytes),
        other => refused(format!(
            "column {} of the primary key has type {other}; keys are integers, uuids, texts \
             (text, varchar) or bytea",
            quoted(column)
        )),
    }
}

/// A unique index over columns.
struct Index {
    columns: Vec<String>,
    /// One for each column.
    collations: Vec<Collation>,
}

struct Collation {
    name: String,
    /// Whether it sorts by bytes.
    is_bytes: bool,
    version: Option<String>,
}

impl Index {
    /// Returns whether rows of this key can be listed by it.
    fn serves(&self, names: &[String], kinds: &[ColumnKind]) -> bool {
        let pairs = self.collations.iter().zip(kinds);
        self.columns == names && { pairs }
            .all(|(collation, kind)| *kind != ColumnKind::Text || collation.is_bytes)
    }
}

/// Returns the unique indexes that cover every row, the primary key first.
async fn indexes(client: &Client, oid: u32) -> Result<Vec<Index>, Failure> {
    // A field that older servers lack is read through JSON.
    let sql = "SELECT i.indexrelid, a.attname::text, coalesce(c.collname, '')::text, \
               CASE WHEN c.collname = 'default' \
               THEN coalesce(to_jsonb(d)->>'datlocprovider', 'c') = 'c' \
               AND d.datcollate IN ('C', 'POSIX') ELSE coalesce(c.collname IN ('C', 'POSIX') \
               AND c.collnamespace = 'pg_catalog'::regnamespace, false) END, \
               pg_collation_actual_version(c.oid) \
               FROM pg_index i JOIN pg_class ic ON ic.oid = i.indexrelid \
               JOIN pg_am am ON am.oid = ic.relam \
               JOIN pg_database d ON d.datname = current_database() \
               CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place) \
               JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum \
               LEFT JOIN pg_collation c ON c.oid = (i.indcollation::oid[])[k.place - 1] \
               WHERE i.indrelid = $1 AND i.indisunique AND i.indisvalid AND i.indislive \
               AND i.indpred IS NULL AND i.indexprs IS NULL AND am.amname = 'btree' \
               AND k.place <= i.indnkeyatts ORDER BY i.indisprimary DESC, i.indexrelid, k.place";
    let rows = client.query_typed(sql, &[(&oid, Type::OID)]).await?;
    let mut indexes: Vec<(u32, Index)> = Vec::new();
    for row in &rows {
        let id: u32 = row.try_get(0)?;
        if indexes.last().is_none_or(|(last, _)| *last != id) {
            indexes.push((id, Index { columns: Vec::new(), collations: Vec::new() }));
        }
        let (_, index) = indexes.last_mut().expect("one was added if there was none");
        index.columns.push(row.try_get(1)?);
        let (name, is_bytes) = (row.try_get(2)?, row.try_get(3)?);
        index.collations.push(Collation { name, is_bytes, version: row.try_get(4)? });
    }
    Ok(indexes.into_iter().map(|(_, index)| index).collect())
}

/// Returns the refusal of a table without a usable index, with the statement that makes one.
fn no_index(table: &str, names: &[String], kinds: &[ColumnKind]) -> Failure {
    let columns = names.iter().zip(kinds).map(|(name, kind)| match kind {
        ColumnKind::Text => format!("{} COLLATE \"C\"", quoted(name)),
        ColumnKind::Integer | ColumnKind::Uuid | ColumnKind::Bytes => quoted(name),
    });
    let columns = columns.collect::<Vec<_>>().join(", ");
    Failure::Refused(format!(
        "the primary key has a text, and no index has it in the order of bytes; run \
         CREATE UNIQUE INDEX CONCURRENTLY ON {table} ({columns})"
    ))
}
