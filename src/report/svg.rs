//! Small pictures as SVG text: a bar of points, a curve of speedups. Colours come from the page's style sheet.
//!
//! Invariant: the same numbers give the same bytes, and every picture says in a `<title>` what it shows.

use std::fmt::Write as _;

use super::escape;
use crate::score::figure;

/// A line of the curve.
pub(crate) struct Line {
    pub(crate) title: String,
    pub(crate) points: Vec<(f64, f64)>,
}

fn share(value: f64, of: f64) -> f64 {
    if of > 0.0 { (value / of * 100.0).clamp(0.0, 100.0) } else { 0.0 }
}

fn n(value: f64) -> String {
    figure::digits((value * 100.0).round() / 100.0, 6)
}

/// A bar: sure points full, open ones hatched.
pub(crate) fn bar(low: f64, high: f64, of: f64) -> String {
    let (a, b) = (share(low, of), share(high, of));
    let title = format!("{} / {}", figure::range(low, high), figure::points(of));
    format!(
        "<svg class=\"bar\" viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" role=\"img\"><title>{title}</title>\
         <rect class=\"all\" width=\"100\" height=\"8\" rx=\"1\"/>\
         <rect class=\"open\" x=\"{}\" width=\"{}\" height=\"8\"/>\
         <rect class=\"sure\" width=\"{}\" height=\"8\" rx=\"1\"/></svg>",
        n(a),
        n(b - a),
        n(a)
    )
}

const W: f64 = 640.0;
const H: f64 = 300.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 40.0;

/// Speedups over the number of accelerators, both axes by doublings, with the ideal line; empty without two points.
pub(crate) fn curve(lines: &[Line]) -> String {
    let all = || lines.iter().flat_map(|l| &l.points).filter(|(x, y)| *x >= 1.0 && *y > 0.0);
    let most = all().map(|(x, _)| *x).fold(1.0, f64::max);
    if all().count() < 2 || most <= 1.0 {
        return String::new();
    }
    let doublings = most.log2();
    let x = |v: f64| LEFT + (W - LEFT - RIGHT) * v.log2() / doublings;
    let y = |v: f64| H - BOTTOM - (H - TOP - BOTTOM) * (v.log2() / doublings).clamp(-0.1, 1.05);
    let mut out = format!(
        "<svg class=\"curve\" viewBox=\"0 0 {W} {H}\" role=\"img\"><title>speedup over the number of accelerators</title>"
    );
    let mut tick = 1.0;
    while tick <= most {
        let (tx, ty) = (n(x(tick)), n(y(tick)));
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{ty}\" y2=\"{ty}\"/>\
             <text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}x</text>\
             <text class=\"tick\" x=\"{tx}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            W - RIGHT,
            LEFT - 8.0,
            n(y(tick) + 4.0),
            figure::number(tick),
            H - BOTTOM + 18.0,
            figure::number(tick),
        );
        tick *= 2.0;
    }
    let _ = write!(
        out,
        "<line class=\"ideal\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"><title>ideal</title></line>",
        n(x(1.0)),
        n(y(1.0)),
        n(x(most)),
        n(y(most))
    );
    for (i, line) in lines.iter().enumerate() {
        let points: Vec<&(f64, f64)> = line.points.iter().filter(|(x, y)| *x >= 1.0 && *y > 0.0).collect();
        let path: Vec<String> = points.iter().map(|(a, b)| format!("{} {}", n(x(*a)), n(y(*b)))).collect();
        let title = escape::html(&line.title);
        let _ = write!(out, "<path class=\"line s{}\" d=\"M{}\"/>", i % 6, path.join("L"));
        for (a, b) in points {
            let _ = write!(
                out,
                "<circle class=\"dot s{}\" cx=\"{}\" cy=\"{}\" r=\"4\"><title>{title}: {}x on {}</title></circle>",
                i % 6,
                n(x(*a)),
                n(y(*b)),
                figure::number(*b),
                figure::number(*a)
            );
        }
    }
    out.push_str("</svg><p class=\"legend\">");
    for (i, line) in lines.iter().enumerate().filter(|(_, l)| !l.points.is_empty()) {
        let _ = write!(out, "<span class=\"key s{}\"></span>{} ", i % 6, escape::html(&line.title));
    }
    out.push_str("</p>");
    out
}
