// What Ollama's own packages make of rows of JSON, for scripts/ollama_goldens.py and scripts/ollama_conversions.py.
//
// A row has a template, messages, tools, think and suffix; the answer has its text or its error. Instead of a template it
// may have a Modelfile, whose SYSTEM is put before messages that have no system text, as Ollama's server does.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/ollama/ollama/api"
	"github.com/ollama/ollama/parser"
	"github.com/ollama/ollama/template"
)

type row struct {
	Template  string          `json:"template"`
	Modelfile string          `json:"modelfile"`
	Messages  []api.Message   `json:"messages"`
	Tools     api.Tools       `json:"tools"`
	Think     *api.ThinkValue `json:"think"`
	Prompt    string          `json:"prompt"`
	Suffix    string          `json:"suffix"`
}

type answer struct {
	Text  string `json:"text"`
	Error string `json:"error,omitempty"`
}

// readModelfile takes the template and the default system text from the Modelfile of a row that has one.
func readModelfile(r *row) error {
	if r.Modelfile == "" {
		return nil
	}
	file, err := parser.ParseFile(strings.NewReader(r.Modelfile))
	if err != nil {
		return err
	}
	for _, command := range file.Commands {
		switch command.Name {
		case "template":
			r.Template = command.Args
		case "system":
			if len(r.Messages) == 0 || r.Messages[0].Role != "system" {
				system := api.Message{Role: "system", Content: command.Args}
				r.Messages = append([]api.Message{system}, r.Messages...)
			}
		}
	}
	return nil
}

// execute renders one row; a panic of Ollama is an error like any other.
func execute(line []byte) (text string, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	var r row
	if err := json.Unmarshal(line, &r); err != nil {
		return "", err
	}
	if err := readModelfile(&r); err != nil {
		return "", err
	}
	parsed, err := template.Parse(r.Template)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, template.Values{
		Messages:   r.Messages,
		Tools:      r.Tools,
		Prompt:     r.Prompt,
		Suffix:     r.Suffix,
		Think:      r.Think.Bool(),
		ThinkLevel: r.Think.String(),
		IsThinkSet: r.Think != nil,
	})
	return out.String(), err
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<24)
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for in.Scan() {
		text, err := execute(in.Bytes())
		if err != nil {
			_ = out.Encode(answer{Error: err.Error()})
			continue
		}
		_ = out.Encode(answer{Text: text})
	}
}
