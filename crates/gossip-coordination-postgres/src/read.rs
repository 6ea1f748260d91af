//! Reads as one call of the function `read`, and its rows as their answers.

use gossip_coordination::InfraError;
use gossip_coordination::store::{Answer, Key, KeyRange, Page, Read, Versioned};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::batch::unsigned;
use crate::param::Param;

/// The arguments of the function `read`. Queries are numbered from 1.
#[derive(Debug, Default)]
pub(crate) struct ReadCall {
    key_query: Vec<i32>,
    keys: Param<Vec<Vec<u8>>>,
    range_query: Vec<i32>,
    range_start: Param<Vec<Vec<u8>>>,
    range_end: Param<Vec<Vec<u8>>>,
    /// `None` counts.
    range_limit: Vec<Option<i64>>,
}

impl ReadCall {
    /// The parameters of the call, in the order of [`ReadCall::params`].
    pub(crate) const TYPES: [Type; 6] = [
        Type::INT4_ARRAY,
        Type::BYTEA_ARRAY,
        Type::INT4_ARRAY,
        Type::BYTEA_ARRAY,
        Type::BYTEA_ARRAY,
        Type::INT8_ARRAY,
    ];

    /// Returns the call that answers `reads`, with at most `page` keys in a page.
    pub(crate) fn new(reads: &[Read], page: usize) -> Self {
        let mut call = Self::default();
        let limited = |limit: &usize| Some(i64::try_from((*limit).min(page)).unwrap_or(i64::MAX));
        for (read, query) in reads.iter().zip(1..) {
            match read {
                Read::Get(key) => {
                    call.key_query.push(query);
                    call.keys.0.push(key.to_bytes().as_bytes().to_vec());
                }
                Read::Scan { range, limit } => call.add_range(query, range, limited(limit)),
                Read::Count(range) => call.add_range(query, range, None),
                Read::ScanFirst { ranges, limit } => {
                    // They share the number of their query, by which the function knows that the
                    // first that is not empty answers it.
                    for range in ranges {
                        call.add_range(query, range, limited(limit));
                    }
                }
            }
        }
        call
    }

    fn add_range(&mut self, query: i32, range: &KeyRange, limit: Option<i64>) {
        self.range_query.push(query);
        self.range_start.0.push(range.start().as_bytes().to_vec());
        self.range_end.0.push(range.end().as_bytes().to_vec());
        self.range_limit.push(limit);
    }

    /// Returns the parameters of the call.
    pub(crate) fn params(&self) -> [&(dyn ToSql + Sync); Self::TYPES.len()] {
        [
            &self.key_query,
            &self.keys,
            &self.range_query,
            &self.range_start,
            &self.range_end,
            &self.range_limit,
        ]
    }
}

/// The answers to reads, and the incarnation of the server that gave them.
#[derive(Debug)]
pub(crate) struct ReadAnswers {
    /// `None` if the server has lost it.
    pub(crate) incarnation: Option<i64>,
    pub(crate) answers: Vec<Answer>,
}

impl ReadAnswers {
    /// Reads the rows of an answer.
    ///
    /// # Errors
    ///
    /// [`InfraError::Corruption`] for a key that is none of ours.
    pub(crate) fn read(reads: &[Read], rows: &[Row]) -> Result<Self, InfraError> {
        let mut incarnation = None;
        let mut answers: Vec<Answer> = reads
            .iter()
            .map(|read| match read {
                // The function returns rows for found keys only, so every answer begins as that of
                // an absent key.
                Read::Get(_) => Answer::Value(None),
                Read::Scan { .. } | Read::ScanFirst { .. } => Answer::Page(Page::new()),
                Read::Count(_) => Answer::Count(0),
            })
            .collect();
        for row in rows {
            let query: i32 = row.try_get(0).map_err(|_| malformed())?;
            let number: i64 = row.try_get(2).map_err(|_| malformed())?;
            if query == 0 {
                // An incarnation is a random number and may be negative, so it is taken before
                // revisions are checked.
                incarnation = Some(number);
                continue;
            }
            let place = usize::try_from(query - 1).map_err(|_| malformed())?;
            let number = unsigned(number).ok_or_else(malformed)?;
            let value = || {
                let bytes = row.try_get(3).map_err(|_| malformed())?;
                Ok(Versioned { revision: number, bytes })
            };
            match answers.get_mut(place).ok_or_else(malformed)? {
                Answer::Value(found) => *found = Some(value()?),
                Answer::Page(page) => {
                    let bytes: &[u8] = row.try_get(1).map_err(|_| malformed())?;
                    let key = Key::parse(bytes).map_err(|error| corrupt(error.to_string()))?;
                    // A function that was replaced could return keys of another tenant.
                    let follows = |(last, _): &(Key, _)| last.to_bytes().as_bytes() < bytes;
                    if !asks(&reads[place], bytes) || !page.last().is_none_or(follows) {
                        return Err(malformed());
                    }
                    page.push((key, value()?));
                }
                Answer::Count(count) => *count = number,
            }
        }
        Ok(Self { incarnation, answers })
    }
}

/// Returns whether a key lies in a range of a query.
fn asks(read: &Read, key: &[u8]) -> bool {
    match read {
        Read::Get(wanted) => wanted.to_bytes().as_bytes() == key,
        Read::Scan { range, .. } | Read::Count(range) => range.contains(key),
        Read::ScanFirst { ranges, .. } => ranges.iter().any(|range| range.contains(key)),
    }
}

fn malformed() -> InfraError {
    corrupt("the function of the schema returned rows of another form".to_owned())
}

fn corrupt(message: String) -> InfraError {
    InfraError::Corruption { operation: "postgres.read", message }
}
