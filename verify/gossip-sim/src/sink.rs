//! The simulated sink: where workers put results, by key, under the fence of their lease.
//!
//! It is what the documentation asks of a real one and no more: it keeps the fence of the last
//! write of each key and refuses a lower one. It knows no coordinator, no lease and no time, so
//! whatever a zombie sends is decided here by the fence alone.

/// The last accepted write of a key; fence zero for none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cell {
    pub(super) fence: u64,
    pub(super) grant: u32,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Accepted,
    /// A newer fence had written the key.
    Stale,
    /// The same fence had been used by another grant.
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

    /// Writes one key whatever its fence, which a sink must not do.
    pub(super) fn force(&mut self, run: u32, key: u32, fence: u64, grant: u32) -> Taken {
        self.cells[run as usize][key as usize] = Cell { fence, grant };
        Taken::Accepted
    }

    /// Whether every key of `keys` has been written.
    pub(super) fn covers(&self, run: u32, keys: (u32, u32)) -> bool {
        let (from, to) = (keys.0 as usize, keys.1 as usize);
        from >= to || self.cells[run as usize][from..to].iter().all(|cell| cell.fence > 0)
    }
}
