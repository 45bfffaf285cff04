package node

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// A Call is one call of the plugin, as its log tells of it.
type Call struct {
	// Verb is the CNI verb, for example "ADD".
	Verb string
	// Duration is from the start of the plugin to its answer.
	Duration time.Duration
	// Code is the CNI error code, and 0 for success.
	Code uint
}

// A PluginLog follows the plugin's log from the moment it was opened for the
// first time, through the plugin's renaming it when it is large.
type PluginLog struct {
	path   string
	file   *os.File
	offset int64
}

// FollowPluginLog begins at the end of what the log holds now. A log that does
// not exist yet is read from its start when it does.
func FollowPluginLog(path string) (*PluginLog, error) {
	l := &PluginLog{path: path}
	err := l.open()
	if err == nil && l.file != nil {
		l.offset, err = l.file.Seek(0, io.SeekEnd)
	}
	if err != nil {
		return nil, fmt.Errorf("follow the plugin's log: %w", err)
	}
	return l, nil
}

// Next returns the calls logged since the last time. A line that is not the
// plugin's is passed over; half a line waits for its other half.
func (l *PluginLog) Next() ([]Call, error) {
	calls, err := l.read()
	if err != nil || !l.renamed() {
		return calls, err
	}
	// The rest of the renamed file was just read; the new one starts at 0.
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
	l.offset = 0
	if err := l.open(); err != nil {
		return calls, err
	}
	more, err := l.read()
	return append(calls, more...), err
}

func (l *PluginLog) open() error {
	f, err := os.Open(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	l.file = f
	return nil
}

// renamed tells whether the path is another file by now.
func (l *PluginLog) renamed() bool {
	now, err := os.Stat(l.path)
	if err != nil {
		return false
	}
	if l.file == nil {
		return true
	}
	open, err := l.file.Stat()
	return err != nil || !os.SameFile(open, now)
}

func (l *PluginLog) read() ([]Call, error) {
	if l.file == nil {
		return nil, nil
	}
	if info, err := l.file.Stat(); err == nil && info.Size() < l.offset {
		l.offset = 0 // somebody truncated it
	}
	r := bufio.NewReader(io.NewSectionReader(l.file, l.offset, 1<<40))
	var calls []Call
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return calls, nil
		}
		if err != nil {
			return calls, fmt.Errorf("read the plugin's log: %w", err)
		}
		l.offset += int64(len(line))
		if c, ok := parseCall(line); ok {
			calls = append(calls, c)
		}
	}
}

func parseCall(line []byte) (Call, bool) {
	var entry struct {
		Verb         string  `json:"msg"`
		Milliseconds float64 `json:"milliseconds"`
		Code         uint    `json:"code"`
	}
	if json.Unmarshal(line, &entry) != nil || entry.Verb == "" {
		return Call{}, false
	}
	return Call{entry.Verb, time.Duration(entry.Milliseconds * float64(time.Millisecond)), entry.Code}, true
}
