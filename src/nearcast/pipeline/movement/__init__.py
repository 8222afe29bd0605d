"""Files of movement on Earth, in the forms in which others write them: each becomes fixes.

`tables` reads CSV and Parquet with latitude and longitude, `gpx` tracks, `ais` what ships send,
`opensky` what aircraft send; `fix_collector` puts their fixes together, and counts what is wrong.
"""
