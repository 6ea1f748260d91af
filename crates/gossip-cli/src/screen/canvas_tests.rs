//! The bytes of a canvas, shown by a small terminal.

use super::super::style::Paint;
use super::*;
use crate::screen::emulator::Emulator;

const SIZE: Size = Size { columns: 20, rows: 16 };

fn frame(lines: &[&str]) -> Vec<Line> {
    lines.iter().map(|line| Line::new().with(Paint::Done, *line)).collect()
}

struct Shown {
    canvas: Canvas,
    terminal: Emulator,
    size: Size,
}

impl Shown {
    fn new() -> Self {
        Self {
            canvas: Canvas::default(),
            terminal: Emulator::new(SIZE.columns, SIZE.rows),
            size: SIZE,
        }
    }

    fn draw(&mut self, text: &str, lines: &[&str]) -> bool {
        let style = Style { is_colored: true, is_ascii: true };
        let bytes = self.canvas.draw(text.as_bytes(), &frame(lines), self.size, style);
        if let Some(bytes) = &bytes {
            self.terminal.write(bytes);
            assert!(self.terminal.is_at_rest(), "{:?}", String::from_utf8_lossy(bytes));
        }
        bytes.is_some()
    }

    fn resize(&mut self, columns: usize) {
        self.size.columns = columns;
        self.terminal.resize(columns);
    }
}

#[test]
fn text_is_printed_above_the_frame() {
    let mut shown = Shown::new();
    shown.terminal.write(b"$ gossip\r\n");
    assert!(shown.draw("", &["map", "bar"]));
    assert!(shown.draw("one\ntwo\n", &["map", "bar 2"]));
    assert!(shown.draw("three", &["map", "bar 3"]));
    assert_eq!(shown.terminal.text(), "$ gossip\none\ntwo\nthree\nmap\nbar 3\n");
    let end = shown.canvas.erase(b"over\n", SIZE.columns);
    shown.terminal.write(&end);
    assert_eq!(shown.terminal.text(), "$ gossip\none\ntwo\nthree\nover\n");
}

#[test]
fn equal_frames_are_written_once() {
    let mut shown = Shown::new();
    assert!(shown.draw("", &["map", "bar"]));
    assert!(!shown.draw("", &["map", "bar"]));
    assert!(shown.draw("", &["map", "bar 2"]));
    // A width that differs may have rewrapped them.
    shown.resize(30);
    assert!(shown.draw("", &["map", "bar 2"]));
}

#[test]
fn text_longer_than_the_screen_scrolls_and_keeps_the_frame() {
    let mut shown = Shown::new();
    shown.draw("", &["map", "bar"]);
    let text: String = (0..50).map(|number| format!("line {number}\n")).collect();
    shown.draw(&text, &["map", "bar 2"]);
    assert_eq!(shown.terminal.text(), format!("{text}map\nbar 2\n"));
}

#[test]
fn height_does_not_shrink_until_the_end() {
    let mut shown = Shown::new();
    shown.draw("", &["map", "bar", "lane"]);
    shown.draw("", &["map", "bar"]);
    assert_eq!(shown.terminal.text(), "map\nbar\n\n");
    shown.draw("text\n", &["map", "bar", "lane"]);
    assert_eq!(shown.terminal.text(), "text\nmap\nbar\nlane\n");
}

#[test]
fn frame_that_a_narrower_terminal_has_wrapped_is_erased_whole() {
    let mut shown = Shown::new();
    shown.terminal.write(b"$ gossip\r\n");
    shown.draw("", &["0123456789abcdefghi", "bar"]);
    shown.resize(7);
    shown.draw("", &["012345", "bar"]);
    assert_eq!(shown.terminal.text(), "$ gossip\n012345\nbar\n");
    shown.resize(1);
    shown.draw("", &[]);
    assert_eq!(shown.terminal.text(), "$ gossip\n");
    shown.resize(20);
    shown.draw("", &["wide again", "bar"]);
    assert_eq!(shown.terminal.text(), "$ gossip\nwide again\nbar\n");
}

#[test]
fn attributes_of_a_text_do_not_reach_the_frame() {
    let mut shown = Shown::new();
    shown.draw("", &["map"]);
    let bytes = shown.canvas.print(b"\x1b[31mred", SIZE.columns);
    shown.terminal.write(&bytes);
    assert!(shown.terminal.is_at_rest());
    assert_eq!(shown.terminal.text(), "red\nmap\n");
}

#[test]
fn frame_is_drawn_below_what_another_program_has_written() {
    let mut shown = Shown::new();
    shown.draw("", &["map", "bar"]);
    shown.terminal.write(b"[1]+ Stopped\r\n$ fg\r\n");
    shown.canvas.forget();
    shown.draw("", &["map", "bar"]);
    assert_eq!(shown.terminal.text(), "map\nbar\n[1]+ Stopped\n$ fg\nmap\nbar\n");
}
