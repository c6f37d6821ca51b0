"""PySpark against a real broker. One session and one broker serve all of these tests."""
