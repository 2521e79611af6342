//! Points and boxes as text: `(x,y)` and `(x,y),(x,y)`.

use super::{invalid_syntax, number, trim};
use strandline_base::{BoxCorners, Error, Point, SqlState};

/// A point: `(x,y)` or `x,y`.
pub fn parse_point(input: &str) -> Result<Point, Error> {
    let mut reader = Reader::new(input, "point");
    let point = reader.pair()?;
    reader.end()?;
    Ok(Point::new(point))
}

/// A box: two opposite corners, as `((x,y),(x,y))`, `(x,y),(x,y)`, `(x,y,x,y)` or `x,y,x,y`. As in
/// PostgreSQL the comma between the corners may be left out behind a parenthesis.
pub fn parse_box(input: &str) -> Result<BoxCorners, Error> {
    let mut reader = Reader::new(input, "box");
    let is_enclosed = reader.opens_enclosure();
    let first = reader.pair()?;
    reader.skip(',');
    let second = reader.pair()?;
    if is_enclosed {
        reader.expect(')')?;
    }
    reader.end()?;
    Ok(BoxCorners::new(first, second))
}

struct Reader<'a> {
    input: &'a str,
    rest: &'a str,
    type_name: &'static str,
}

impl<'a> Reader<'a> {
    fn new(input: &'a str, type_name: &'static str) -> Self {
        Self {
            input,
            rest: trim(input),
            type_name,
        }
    }

    fn invalid(&self) -> Error {
        invalid_syntax(self.type_name, self.input)
    }

    /// Steps over the character and the blanks behind it; false: another one comes next.
    fn skip(&mut self, wanted: char) -> bool {
        match self.rest.strip_prefix(wanted) {
            Some(rest) => {
                self.rest = trim(rest);
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, wanted: char) -> Result<(), Error> {
        match self.skip(wanted) {
            true => Ok(()),
            false => Err(self.invalid()),
        }
    }

    fn end(&self) -> Result<(), Error> {
        match self.rest.is_empty() {
            true => Ok(()),
            false => Err(self.invalid()),
        }
    }

    /// Steps over a parenthesis around all corners: another one follows it directly, or there is no
    /// other one.
    fn opens_enclosure(&mut self) -> bool {
        let Some(inside) = self.rest.strip_prefix('(').map(trim) else {
            return false;
        };
        let is_enclosed = inside.starts_with('(') || !inside.contains('(');
        if is_enclosed {
            self.rest = inside;
        }
        is_enclosed
    }

    /// `(x,y)` or `x,y`
    fn pair(&mut self) -> Result<[f64; 2], Error> {
        let has_parentheses = self.skip('(');
        let x = self.coordinate()?;
        self.expect(',')?;
        let y = self.coordinate()?;
        if has_parentheses {
            self.expect(')')?;
        }
        Ok([x, y])
    }

    fn coordinate(&mut self) -> Result<f64, Error> {
        let end = self.rest.find([',', '(', ')']).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        let value = number::parse_double(word).map_err(|error| {
            // A number out of range is reported as one.
            match error.sqlstate() == SqlState::INVALID_TEXT_REPRESENTATION {
                true => self.invalid(),
                false => error,
            }
        })?;
        self.rest = rest;
        Ok(value)
    }
}
