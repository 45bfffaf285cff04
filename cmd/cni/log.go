package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/pkg/types"
)

// maxLog is the size in bytes at which a log file is renamed to FILE.1, in place
// of the one before: both together are never larger than about twice that.
const maxLog = 5 << 20

// log writes the call's one line. A log that cannot be written is no reason to
// fail a pod: standard error says so. A call that is refused before its
// configuration is read, since it is not JSON or the protocol's version is not
// known, has its line in the default log.
func (c *call) log(failed *types.Error) {
	var line bytes.Buffer
	if c.conf.LogFile == "" || !c.format(&line, failed) {
		return
	}
	if err := appendLog(c.conf.LogFile, line.Bytes()); err != nil {
		fmt.Fprintln(os.Stderr, "vpcroute: log:", err)
	}
}

// format builds the line and reports whether the level lets it through.
func (c *call) format(line *bytes.Buffer, failed *types.Error) bool {
	var threshold slog.Level
	_ = threshold.UnmarshalText([]byte(c.conf.LogLevel)) // validated; else info
	level := slog.LevelInfo
	words := []any{
		"pod", c.pod.String(),
		"podUID", c.pod.UID,
		"container", c.args.ContainerID,
		"interface", c.args.IfName,
		"addresses", c.addresses,
		"milliseconds", float64(time.Since(c.began).Microseconds()) / 1000,
		"version", version,
	}
	if len(c.warnings) > 0 {
		level = slog.LevelWarn
		words = append(words, "warning", oneLine(errors.Join(c.warnings...).Error()))
	}
	if failed != nil {
		level = slog.LevelError
		words = append(words, "code", failed.Code, "error", failed.Error())
	}
	h := slog.NewJSONHandler(line, &slog.HandlerOptions{Level: threshold})
	slog.New(h).Log(context.Background(), level, c.verbName, words...)
	return line.Len() > 0
}

// appendLog adds a line in one write, so lines of calls at the same moment never
// mix. Two that rename at once lose at most the older half.
func appendLog(path string, line []byte) error {
	if info, err := os.Stat(path); err == nil && info.Size()+int64(len(line)) > maxLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return err
		}
	}
	f, err := openLog(path)
	if err != nil {
		return err
	}
	_, err = f.Write(line)
	return errors.Join(err, f.Close())
}

func openLog(path string) (*os.File, error) {
	const flags = os.O_APPEND | os.O_CREATE | os.O_WRONLY
	f, err := os.OpenFile(path, flags, 0o640)
	if os.IsNotExist(err) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		f, err = os.OpenFile(path, flags, 0o640)
	}
	return f, err
}
