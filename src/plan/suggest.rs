//! Near misses: what a misspelt word was probably meant to be.

/// The word nearest to `got`, if it is near enough to be meant.
pub(crate) fn nearest<'s>(got: &str, words: impl IntoIterator<Item = &'s str>) -> Option<&'s str> {
    let length = got.chars().count();
    let plain = |byte: u8| if byte == b'-' { b'_' } else { byte.to_ascii_lowercase() };
    let is_same = |word: &str| word.len() == got.len() && word.bytes().map(plain).eq(got.bytes().map(plain));
    let near = words.into_iter().filter_map(|word| {
        let limit = 1 + word.chars().count() / 4;
        // Words of very different length need no table.
        if word.chars().count().abs_diff(length) > limit {
            return None;
        }
        let distance = if is_same(word) { 1 } else { distance(got, word) };
        (distance <= limit && distance < length).then_some((distance, word))
    });
    near.min().map(|(_, word)| word)
}

/// A word that shares a part with `got`, such as `gpus` with `num_gpus`: enough to be named, too little to be meant.
pub(crate) fn akin<'s>(got: &str, words: impl IntoIterator<Item = &'s str>) -> Option<&'s str> {
    let parts = |word: &'s str| word.split(['_', '-']).collect::<Vec<&'s str>>();
    let is_same = |a: &str, b: &str| {
        a.len() >= 3 && (a == b || a.len() >= 4 && a.len().abs_diff(b.len()) <= 1 && distance(a, b) <= 1)
    };
    words
        .into_iter()
        .find(|word| parts(word).iter().any(|theirs| got.split(['_', '-']).any(|ours| is_same(ours, theirs))))
}

/// `did you mean …?` for a near miss, else the words there are, else nothing.
pub(crate) fn help<'s>(got: &str, words: impl IntoIterator<Item = &'s str>) -> Option<String> {
    const SHOWN: usize = 12;
    let mut words: Vec<&str> = words.into_iter().collect();
    words.sort_unstable();
    words.dedup();
    if let Some(word) = nearest(got, words.iter().copied()) {
        return Some(format!("did you mean `{word}`?"));
    }
    let more = if words.len() > SHOWN { format!(" and {} more", words.len() - SHOWN) } else { String::new() };
    words.truncate(SHOWN);
    (!words.is_empty()).then(|| format!("known here: {}{more}", words.join(", ")))
}

/// How many insertions, deletions, replacements and swaps of neighbours lead from `a` to `b`.
///
/// # Formula
/// Optimal string alignment. A swap counts once, so that `titel` is nearer to `title` than to `tier`.
fn distance(a: &str, b: &str) -> usize {
    // What both begin and end with costs nothing; for most words of a list little is left.
    let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum::<usize>();
    let (a, b) = (&a[same..], &b[same..]);
    let ends = a.chars().rev().zip(b.chars().rev()).take_while(|(a, b)| a == b);
    let same = ends.map(|(a, _)| a.len_utf8()).sum::<usize>();
    let (a, b) = (&a[..a.len() - same], &b[..b.len() - same]);
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.is_empty() || b.is_empty() {
        return a.len() + b.len();
    }
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_counts_once() {
        assert_eq!(distance("titel", "title"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(nearest("titel", ["tier", "title"]), Some("title"));
        assert_eq!(nearest("Stop-After", ["warn_after", "stop_after"]), Some("stop_after"));
    }

    #[test]
    fn what_is_far_off_is_not_suggested() {
        assert_eq!(nearest("frequency", ["tier", "title"]), None);
        assert_eq!(nearest("x", ["y", "id"]), None, "one letter replaced is no near miss");
        assert_eq!(nearest("num_gpus", ["gpus"]), None);
        assert_eq!(akin("num_gpus", ["title", "gpus"]), Some("gpus"));
        assert_eq!(akin("warmup_step", ["mode", "steps"]), Some("steps"));
        assert_eq!(akin("num_workers", ["workloads", "name"]), None);
    }
}
