//! Histories of transactions as files: one transaction per line, a JSON object, as docs/reference/histories.md shows.

use super::{Ending, Step, Transaction, Transactions};
use crate::json_lines::{Bytes, ReadError, for_each_line, plain};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::io::{self, BufRead, Write};

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    client: u64,
    #[serde(borrow)]
    transaction: Vec<StepLine<'a>>,
    start: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<u64>,
    #[serde(borrow)]
    outcome: Cow<'a, str>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct StepLine<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    append: Option<Bytes<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    element: Option<Bytes<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    read: Option<Bytes<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    elements: Option<Vec<Bytes<'a>>>,
}

impl StepLine<'_> {
    fn step(self, is_answered: bool) -> Result<Step, String> {
        let StepLine { append, element, read, elements } = self;
        match (append, element, read, elements) {
            (Some(key), Some(element), None, None) => {
                Ok(Step::Append { key: key.0.into(), element: element.0.into() })
            }
            (None, None, Some(key), Some(elements)) => {
                let elements = elements.into_iter().map(|element| element.0.into()).collect();
                Ok(Step::Read { key: key.0.into(), elements })
            }
            (None, None, Some(key), None) if !is_answered => {
                Ok(Step::Read { key: key.0.into(), elements: Vec::new() })
            }
            _ => Err("a step has \"append\" and \"element\", or \"read\" and \"elements\"".into()),
        }
    }
}

impl Transactions {
    /// Adds the transactions of a file, whether it is compressed or not.
    ///
    /// # Errors
    /// [`ReadError`] with the line that cannot be read.
    pub fn read(&mut self, input: impl BufRead) -> Result<(), ReadError> {
        for_each_line(input, |line| {
            let Line { client, transaction, start, end, outcome } =
                serde_json::from_slice(line).map_err(|error| plain(&error))?;
            let ending = match &*outcome {
                "ok" => Ending::Ok,
                "failed" => Ending::Failed,
                "unknown" => Ending::Unknown,
                other => return Err(format!("the outcome is ok, failed or unknown, not '{other}'")),
            };
            if ending == Ending::Ok && end.is_none_or(|end| end < start) {
                return Err("a transaction with the outcome ok ends, and not before it began".into());
            }
            let steps = transaction.into_iter().map(|step| step.step(ending == Ending::Ok));
            let steps = steps.collect::<Result<_, _>>()?;
            self.all.push(Transaction { client, start, end, ending, steps });
            Ok(())
        })
    }

    /// Writes all transactions, one in a line.
    ///
    /// # Errors
    /// The error of `output`.
    pub fn write(&self, mut output: impl Write) -> io::Result<()> {
        fn bytes(bytes: &[u8]) -> Option<Bytes<'_>> {
            Some(Bytes(Cow::Borrowed(bytes)))
        }
        for Transaction { client, start, end, ending, steps } in &self.all {
            let steps = steps.iter().map(|step| match step {
                Step::Append { key, element } => {
                    StepLine { append: bytes(key), element: bytes(element), read: None, elements: None }
                }
                Step::Read { key, elements } => {
                    let elements = elements.iter().filter_map(|element| bytes(element)).collect();
                    let elements = (*ending == Ending::Ok).then_some(elements);
                    StepLine { append: None, element: None, read: bytes(key), elements }
                }
            });
            let outcome = match ending {
                Ending::Ok => "ok",
                Ending::Failed => "failed",
                Ending::Unknown => "unknown",
            };
            let line = Line {
                client: *client,
                transaction: steps.collect(),
                start: *start,
                end: *end,
                outcome: outcome.into(),
            };
            serde_json::to_writer(&mut output, &line)?;
            output.write_all(b"\n")?;
        }
        Ok(())
    }
}
