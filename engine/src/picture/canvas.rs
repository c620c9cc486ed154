//! Builds an SVG with a background.

use std::fmt::Write;

/// Default width of a picture, in pixels.
pub const WIDTH: f64 = 900.0;
/// Text colour.
pub const INK: &str = "#1f2328";
/// Colour of secondary text, and of thin lines.
pub const PALE: &str = "#59636e";
/// Background colour.
pub const GROUND: &str = "#eef1f4";
/// Upper bound of a letter's width in a sans-serif font, relative to the font size.
const ADVANCE: f64 = 0.62;

/// A rectangle, in pixels from the upper left corner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Area {
    /// Left edge.
    pub x: f64,
    /// Upper edge.
    pub y: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
}

impl Area {
    /// A rectangle with this upper left corner and size.
    pub fn new(x: f64, y: f64, width: f64, height: f64) -> Self {
        Self { x, y, width, height }
    }
}

/// Text style, including which end of the text is at the given point.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    size: f64,
    fill: &'static str,
    is_bold: bool,
    anchor: &'static str,
}

impl Style {
    /// The title of a picture.
    pub const TITLE: Self = Self { is_bold: true, ..Self::words(16.0, INK) };
    /// The heading of a section of a picture.
    pub const HEADING: Self = Self { is_bold: true, ..Self::words(13.0, INK) };
    /// Normal text in a picture.
    pub const PLAIN: Self = Self::words(12.0, INK);
    /// Notes in smaller text.
    pub const SMALL: Self = Self::words(11.0, PALE);

    const fn words(size: f64, fill: &'static str) -> Self {
        Self { size, fill, is_bold: false, anchor: "start" }
    }

    /// This style, with the text centred at the point.
    pub const fn middle(self) -> Self {
        Self { anchor: "middle", ..self }
    }

    /// This style, with the text ending at the point.
    pub const fn end(self) -> Self {
        Self { anchor: "end", ..self }
    }

    /// This style with a different colour.
    pub const fn fill(self, fill: &'static str) -> Self {
        Self { fill, ..self }
    }

    /// Upper bound of the text's width in pixels.
    pub fn width(&self, text: &str) -> f64 {
        ADVANCE * self.size * text.chars().count() as f64
    }
}

/// A picture under construction. Identical calls produce identical bytes.
#[derive(Debug)]
pub struct Canvas {
    width: f64,
    height: f64,
    body: String,
}

impl Canvas {
    /// A picture of [`WIDTH`] by `height` pixels, with a title and, below it, lines of notes.
    pub fn new(height: f64, title: &str, notes: &[&str]) -> Self {
        Self::sized(WIDTH, height, title, notes)
    }

    /// Like [`Self::new`], with a given width.
    pub fn sized(width: f64, height: f64, title: &str, notes: &[&str]) -> Self {
        let mut canvas = Self { width, height, body: String::new() };
        canvas.text(20.0, 32.0, Style::TITLE, title);
        for (i, note) in notes.iter().enumerate() {
            canvas.text(20.0, 53.0 + 17.0 * i as f64, Style::PLAIN.fill(PALE), note);
        }
        canvas
    }

    /// A filled rectangle.
    pub fn rect(&mut self, area: Area, fill: &str) {
        self.rect_with(area, fill, "", "");
    }

    /// A filled rectangle with SVG attributes, and a text that browsers show on hovering.
    pub fn rect_with(&mut self, area: Area, fill: &str, attributes: &str, hover: &str) {
        let Area { x, y, width, height } = area;
        let _ = write!(
            self.body,
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" \
             fill=\"{fill}\"{}{attributes}",
            if attributes.is_empty() { "" } else { " " }
        );
        self.body += &match hover {
            "" => "/>\n".to_string(),
            _ => format!("><title>{}</title></rect>\n", escape(hover)),
        };
    }

    /// A rounded box with a border.
    pub fn boxed(&mut self, area: Area, fill: &str, border: &str) {
        self.rect_with(area, fill, &format!("rx=\"4\" stroke=\"{border}\""), "");
    }

    /// Text with its baseline at `y`.
    pub fn text(&mut self, x: f64, y: f64, style: Style, text: &str) {
        let Style { size, fill, is_bold, anchor } = style;
        let bold = if is_bold { " font-weight=\"bold\"" } else { "" };
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.2}\" y=\"{y:.2}\" font-size=\"{size}\" fill=\"{fill}\" \
             text-anchor=\"{anchor}\"{bold}>{}</text>",
            escape(text)
        );
    }

    /// A line along an SVG path.
    pub fn path(&mut self, path: &str, stroke: &str, width: f64) {
        self.path_with(path, stroke, width, "");
    }

    /// A line along an SVG path that ends in an arrow's head.
    pub fn arrow(&mut self, path: &str, stroke: &str, width: f64) {
        self.path_with(path, stroke, width, "marker-end=\"url(#head)\"");
    }

    /// A line along an SVG path, with attributes.
    pub fn path_with(&mut self, path: &str, stroke: &str, width: f64, attributes: &str) {
        let _ = writeln!(
            self.body,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"{width}\" \
             {attributes}/>"
        );
    }

    /// An area within an SVG path, with an opacity.
    pub fn area(&mut self, path: &str, fill: &str, opacity: f64) {
        let _ =
            writeln!(self.body, "<path d=\"{path}\" fill=\"{fill}\" fill-opacity=\"{opacity}\"/>");
    }

    /// Groups the elements that `draw` adds under a text that browsers show on hovering.
    pub fn titled(&mut self, hover: &str, draw: impl FnOnce(&mut Self)) {
        let _ = writeln!(self.body, "<g><title>{}</title>", escape(hover));
        draw(self);
        self.body += "</g>\n";
    }

    /// A legend of colours in one row.
    pub fn legend(&mut self, mut x: f64, y: f64, entries: &[(&str, &str)]) {
        for (fill, meaning) in entries {
            self.rect(Area::new(x, y - 10.0, 12.0, 12.0), fill);
            self.text(x + 18.0, y, Style::PLAIN, meaning);
            x += 36.0 + Style::PLAIN.width(meaning);
        }
    }

    /// The contents of the SVG file.
    pub fn finish(self) -> String {
        let Self { width, height, body } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width} {height:.0}\" font-family=\"Helvetica, Arial, sans-serif\">\n\
             <defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" \
             markerWidth=\"8\" markerHeight=\"8\" markerUnits=\"userSpaceOnUse\" \
             orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"{PALE}\"/></marker></defs>\n\
             <rect width=\"{width}\" height=\"{height:.0}\" rx=\"6\" fill=\"#ffffff\" \
             stroke=\"#d1d9e0\"/>\n{body}</svg>\n"
        )
    }
}

/// Escapes text for SVG; control characters that XML does not allow become spaces.
pub fn escape(text: &str) -> String {
    let plain = text.replace(|c: char| c.is_control() && !"\n\t".contains(c), " ");
    plain
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn names_are_html_escaped() {
        let text = escape("<script>alert('x')</script> & \"y\"\u{1b}\n");
        assert_eq!(text, "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; &quot;y&quot; \n");
    }
}
