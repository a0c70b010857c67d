//! Regular expressions over lines: for tools that print for people.

use regex_lite::Regex;

use super::{Reader, Said};
use crate::measure::{Better, Finite, Labels, Unit};

/// A metric and the expression that finds it.
#[derive(Debug)]
struct Rule {
    metric: String,
    regex: Regex,
    unit: Unit,
    better: Better,
}

/// Finds metrics by regular expressions: the first group of each match is a number.
#[derive(Debug, Default)]
pub struct PatternReader {
    rules: Vec<Rule>,
}

impl PatternReader {
    /// Adds a metric.
    ///
    /// # Errors
    /// A fragment that says what is wrong with the expression.
    pub fn add(&mut self, metric: &str, regex: &str, unit: Unit, better: Better) -> Result<(), String> {
        let regex = compile(regex)?;
        self.rules.push(Rule { metric: metric.to_owned(), regex, unit, better });
        Ok(())
    }
}

/// Compiles an expression that has a group for the number.
///
/// # Errors
/// A fragment that says what is wrong with it.
pub fn compile(regex: &str) -> Result<Regex, String> {
    let compiled = Regex::new(regex).map_err(|e| format!("`{regex}` is no regular expression: {e}"))?;
    if compiled.captures_len() < 2 {
        return Err(format!("`{regex}` has no group: put ( ) around the number"));
    }
    Ok(compiled)
}

impl Reader for PatternReader {
    fn line(&mut self, line: &str, said: &mut Vec<Said>) {
        // Ranks that print at the same time share lines: every match is a value.
        let all =
            self.rules.iter().flat_map(|rule| rule.regex.captures_iter(line).map(move |found| (rule, found)));
        for (rule, found) in all {
            let Some(text) = found.get(1) else { continue };
            // Thousands separators are the most that tools put into numbers.
            let number =
                text.as_str().replace([',', '_'], "").parse::<f64>().ok().and_then(|n| Finite::new(n).ok());
            said.push(match number {
                Some(value) => Said::Number {
                    name: rule.metric.clone(),
                    value,
                    unit: Some(rule.unit.clone()),
                    labels: Labels::none(),
                    better: Some(rule.better),
                },
                None => Said::Unreadable(format!("`{}` for {} is no number", text.as_str(), rule.metric)),
            });
        }
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "what is read from text must be exactly the number")]
mod tests {
    use super::*;

    #[test]
    fn the_first_group_is_the_number() {
        let mut reader = PatternReader::default();
        reader.add("copy", r"Copy:\s+([\d.,]+)", Unit::new("MB/s"), Better::Higher).unwrap();
        let mut said = Vec::new();
        reader.line("Copy:        12,345.6     0.013", &mut said);
        reader.line("Copy:        ...", &mut said);
        reader.line("Scale: 1", &mut said);
        assert!(matches!(&said[0], Said::Number { value, .. } if value.get() == 12_345.6), "{said:?}");
        assert!(matches!(said[1], Said::Unreadable(_)));
        assert_eq!(said.len(), 2);
    }

    /// Eight ranks on one line, JSON spread over lines behind a progress bar: nothing is lost and nothing invented.
    #[test]
    fn p28_a_log_that_ranks_have_glued_together() {
        let log = include_str!("../../fixtures/readers/P28-train-log-glued-ranks.txt");
        let mut reader = PatternReader::default();
        for (metric, regex) in [("loss", r"loss = ([0-9.]+)"), ("seen", r#""samples_seen": ([0-9]+)"#)] {
            reader.add(metric, regex, Unit::COUNT, Better::Neither).unwrap();
        }
        let (mut found, mut by_json) = (Vec::new(), Vec::new());
        for line in log.lines() {
            reader.line(line, &mut found);
            crate::readers::JsonLines.line(line, &mut by_json);
        }
        let values = |wanted: &str| -> Vec<f64> {
            let of = |said: &Said| match said {
                Said::Number { name, value, .. } if name == wanted => Some(value.get()),
                _ => None,
            };
            found.iter().filter_map(of).collect()
        };
        let loss = values("loss");
        assert_eq!(
            loss,
            [0.957_031_25, 0.714_843_75, 0.644_531_25, 2.953_125, 12.5, 10.5, 1.765_625, 0.921_875]
        );
        assert_eq!(values("seen"), [9661.0, 9773.0]);
        assert!(by_json.is_empty(), "what is no JSON line says nothing: {by_json:?}");
    }

    #[test]
    fn an_expression_needs_a_group() {
        let mut reader = PatternReader::default();
        assert!(reader.add("x", r"\d+", Unit::RATIO, Better::Higher).is_err());
        assert!(reader.add("x", r"(\d+", Unit::RATIO, Better::Higher).is_err());
    }
}
