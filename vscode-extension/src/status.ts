// The status bar item, bottom right. Its text is the server's own (`flagos/status`), never computed here.
import * as vscode from 'vscode';

/** Params of the `flagos/status` notification. */
export interface StatusParams {
  state: 'no-device' | 'idle' | 'attached' | 'ended';
  text: string;
  tooltip: string;
  severity: 0 | 1 | 2;
}

export class StatusItem implements vscode.Disposable {
  private readonly item: vscode.StatusBarItem;

  constructor() {
    this.item = vscode.window.createStatusBarItem('flagos.status', vscode.StatusBarAlignment.Right, 100);
    this.item.name = 'FlagOS device';
    this.starting();
    this.item.show();
  }

  starting(): void {
    this.set('$(loading~spin) FlagOS', 'The FlagOS language server is starting.', 0, 'flagos.showLog');
  }

  /** The server died for good: say so, and offer the way back. */
  stopped(reason: string): void {
    this.set('$(error) FlagOS stopped', `${reason}\n\n[Restart](command:flagos.restart) · [Show the log](command:flagos.showLog)`, 2, 'flagos.restart');
  }

  update(status: StatusParams): void {
    const icon = { 'no-device': '$(circle-slash)', idle: '$(circuit-board)', attached: '$(pulse)', ended: '$(debug-stop)' }[status.state];
    this.set(`${icon} ${status.text}`, status.tooltip, status.severity, 'flagos.showLog');
  }

  private set(text: string, tooltip: string, severity: number, command: string): void {
    this.item.text = text;
    const markdown = new vscode.MarkdownString(tooltip);
    markdown.isTrusted = { enabledCommands: ['flagos.restart', 'flagos.showLog'] };
    this.item.tooltip = markdown;
    this.item.command = command;
    const colour = ['', 'statusBarItem.warningBackground', 'statusBarItem.errorBackground'][severity];
    this.item.backgroundColor = colour ? new vscode.ThemeColor(colour) : undefined;
  }

  dispose(): void {
    this.item.dispose();
  }
}
