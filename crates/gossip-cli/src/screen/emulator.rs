//! A small terminal for tests: it understands what the canvas writes, and fails on anything else.

/// Lines of a terminal that rewraps them when its width changes, as current ones do.
#[derive(Debug)]
pub(crate) struct Emulator {
    columns: usize,
    rows: usize,
    /// All lines, those that have scrolled out as well; the flag says that a line was wrapped into
    /// the next one.
    lines: Vec<(Vec<char>, bool)>,
    /// Position of the cursor in `lines`.
    row: usize,
    column: usize,
    /// Attributes, a hidden cursor, or synchronized output that has not ended.
    open: Vec<String>,
}

impl Emulator {
    pub(crate) fn new(columns: usize, rows: usize) -> Self {
        let lines = vec![(Vec::new(), false)];
        Self { columns, rows, lines, row: 0, column: 0, open: Vec::new() }
    }

    /// Returns all lines.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (index, (line, is_wrapped)) in self.lines.iter().enumerate() {
            text.extend(line);
            if index + 1 < self.lines.len() && !is_wrapped {
                text.push('\n');
            }
        }
        text
    }

    /// Returns whether the cursor is visible, no attribute is set and synchronized output is over.
    pub(crate) const fn is_at_rest(&self) -> bool {
        self.open.is_empty()
    }

    pub(crate) fn resize(&mut self, columns: usize) {
        let mut text = Vec::new();
        for (line, is_wrapped) in std::mem::take(&mut self.lines) {
            text.extend(line);
            text.extend((!is_wrapped).then_some('\n'));
        }
        text.pop();
        *self = Self { open: std::mem::take(&mut self.open), ..Self::new(columns, self.rows) };
        for letter in text {
            if letter == '\n' {
                self.column = 0;
            }
            self.put(letter);
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let text = String::from_utf8(bytes.to_vec()).expect("the canvas writes text");
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            if letter != '\x1b' {
                // The terminal device adds the carriage return.
                if letter == '\n' {
                    self.column = 0;
                }
                self.put(letter);
                continue;
            }
            assert_eq!(letters.next(), Some('['), "another sequence");
            let mut sequence = String::new();
            for letter in letters.by_ref() {
                sequence.push(letter);
                if letter.is_ascii_alphabetic() {
                    break;
                }
            }
            self.control(&sequence);
        }
    }

    fn put(&mut self, letter: char) {
        match letter {
            '\r' => self.column = 0,
            '\n' => {
                self.row += 1;
                if self.row == self.lines.len() {
                    self.lines.push((Vec::new(), false));
                }
            }
            letter => {
                if self.column == self.columns {
                    self.lines[self.row].1 = true;
                    self.column = 0;
                    self.put('\n');
                }
                let line = &mut self.lines[self.row].0;
                line.resize(line.len().max(self.column + 1), ' ');
                line[self.column] = letter;
                self.column += 1;
            }
        }
    }

    fn control(&mut self, sequence: &str) {
        let (parameter, action) = sequence.split_at(sequence.len() - 1);
        match (parameter, action) {
            ("", "J") => {
                self.lines.truncate(self.row + 1);
                self.lines[self.row].0.truncate(self.column);
                self.lines[self.row].1 = false;
            }
            ("", "K") => self.lines[self.row].0.truncate(self.column),
            (rows, "A") => {
                let top = self.lines.len().saturating_sub(self.rows);
                self.row = self.row.saturating_sub(rows.parse().unwrap()).max(top);
            }
            ("?2026", "h") | ("?25", "l") => self.open.push(parameter.to_owned()),
            ("?2026", "l") | ("?25", "h") => self.open.retain(|it| it != parameter),
            ("0", "m") => self.open.retain(|it| it != "m"),
            (_, "m") => self.open.push("m".to_owned()),
            _ => panic!("unknown sequence {sequence:?}"),
        }
    }
}
