//! Bounds the length of operator chains, such as `1 + 1 + …`. The parser does not count them as
//! nesting, but their trees are as deep as they are long, which would exhaust the stack of a
//! recursive walk.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use strandline_base::{Error, Result, SqlState};

/// The most operators in a chain.
const MOST_OPERATORS: usize = 1_000;
/// The most UNION, EXCEPT and INTERSECT in a chain: each is a whole query to plan.
const MOST_SET_OPERATIONS: usize = 500;

/// 54001 if a chain is too long.
pub fn check(tokens: &[TokenWithSpan]) -> Result<()> {
    let mut levels = vec![Chain::default()];
    for token in tokens {
        match &token.token {
            Token::LParen | Token::LBracket => levels.push(Chain::default()),
            Token::RParen | Token::RBracket if levels.len() > 1 => {
                levels.pop();
            }
            other => {
                if let Some(chain) = levels.last_mut() {
                    chain.extend(other);
                    if chain.operators > MOST_OPERATORS {
                        return Err(too_long(MOST_OPERATORS, "operators"));
                    }
                    if chain.set_operations > MOST_SET_OPERATIONS {
                        return Err(too_long(MOST_SET_OPERATIONS, "set operations"));
                    }
                }
            }
        }
    }
    Ok(())
}

/// The counts of one level of parentheses.
#[derive(Default)]
struct Chain {
    operators: usize,
    set_operations: usize,
}

impl Chain {
    fn extend(&mut self, token: &Token) {
        match token {
            Token::Comma => self.operators = 0,
            Token::SemiColon => *self = Self::default(),
            Token::Word(word) => match word.keyword {
                Keyword::UNION | Keyword::INTERSECT | Keyword::EXCEPT => {
                    self.operators = 0;
                    self.set_operations += 1;
                }
                Keyword::SELECT | Keyword::FROM | Keyword::WHERE | Keyword::VALUES => {
                    self.operators = 0;
                }
                Keyword::AND
                | Keyword::OR
                | Keyword::IS
                | Keyword::LIKE
                | Keyword::COLLATE
                | Keyword::AT => self.operators += 1,
                _ => {}
            },
            Token::Whitespace(_)
            | Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::Placeholder(_)
            | Token::Period
            | Token::EOF => {}
            // All other tokens count as operators.
            _ => self.operators += 1,
        }
    }
}

fn too_long(most: usize, what: &str) -> Error {
    Error::invalid(SqlState("54001"), "the statement is nested too deeply").with_hint(format!(
        "A chain has at most {most} {what}: use parentheses, IN (…), or a table of values."
    ))
}
