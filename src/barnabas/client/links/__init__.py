"""Work on cluster links that takes several requests: cut-over, comparing both sides, and a drill without a change."""
