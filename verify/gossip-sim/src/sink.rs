//! The simulated sink: stores the results of workers by key, under the fence of their lease.
//!
//! It does what the documentation requires of a real sink and nothing more: it keeps the fence of
//! the last write of each key and rejects a lower one. It has no access to coordinator, leases or
//! time, so a stale write is rejected by its fence alone.

/// The last accepted write of a key; fence zero for none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cell {
    pub(super) fence: u64,
    pub(super) grant: u32,
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Accepted,
    /// A newer fence had written the key.
    Stale,
    /// Another grant had used the same fence.
    Crossed,
}

/// Every key of every run.
#[derive(Debug, Default)]
pub(super) struct Sink {
    cells: Vec<Vec<Cell>>,
}

impl Sink {
    pub(super) fn add_run(&mut self, key_count: u32) {
        self.cells.push(vec![Cell::default(); key_count as usize]);
    }

    pub(super) fn cell(&self, run: u32, key: u32) -> Cell {
        self.cells[run as usize][key as usize]
    }

    /// Writes one key.
    pub(super) fn write(&mut self, run: u32, key: u32, fence: u64, grant: u32) -> Taken {
        let cell = &mut self.cells[run as usize][key as usize];
        if fence < cell.fence {
            return Taken::Stale;
        }
        if fence == cell.fence && grant != cell.grant {
            return Taken::Crossed;
        }
        *cell = Cell { fence, grant };
        Taken::Accepted
    }

    /// Writes one key regardless of its fence, as a broken sink does.
    pub(super) fn force(&mut self, run: u32, key: u32, fence: u64, grant: u32) -> Taken {
        self.cells[run as usize][key as usize] = Cell { fence, grant };
        Taken::Accepted
    }

    /// Returns whether every key of `keys` has been written.
    pub(super) fn covers(&self, run: u32, keys: (u32, u32)) -> bool {
        let (from, to) = (keys.0 as usize, keys.1 as usize);
        from >= to || self.cells[run as usize][from..to].iter().all(|cell| cell.fence > 0)
    }
}
