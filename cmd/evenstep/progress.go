package main

import (
	"os"

	"github.com/mattn/go-isatty"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// progress shows on stderr how far a run is, if that is a terminal, and nothing when the run is done. The caller ticks
// total times and calls done in any case.
func progress(what string, total int) (tick, done func()) {
	if !isatty.IsTerminal(os.Stderr.Fd()) {
		return func() {}, func() {}
	}
	bars := mpb.New(mpb.WithOutput(os.Stderr))
	bar := bars.AddBar(int64(total), mpb.BarRemoveOnComplete(), mpb.PrependDecorators(decor.Name(what+" ")),
		mpb.AppendDecorators(decor.Percentage(), decor.AverageETA(decor.ET_STYLE_GO, decor.WCSyncSpace)))
	return bar.Increment, func() {
		bar.Abort(true)
		bars.Wait()
	}
}
